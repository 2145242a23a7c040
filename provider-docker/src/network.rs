//! A session's own network.

use std::collections::HashMap;
use std::net::IpAddr;

use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::ListNetworksOptionsBuilder;
use outpost_core::model::SandboxId;
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::Fault;

use crate::engine::Engine;
use crate::fault::{Asking as _, status};
use crate::names::{INSTANCE, Names, ROLE, Role};

impl Engine {
    /// Makes the network of a sandbox, or finds it.
    pub(crate) async fn make_network(&self, names: &Names, id: &SandboxId) -> Result<(), Fault> {
        let name = names.sandbox(id);
        // Two networks can have one name.
        if !self.networks(names, Some(&name)).await?.is_empty() {
            return Ok(());
        }
        let request = NetworkCreateRequest {
            name,
            driver: Some("bridge".to_owned()),
            labels: Some(names.labels_of(Role::Session, id)),
            ..NetworkCreateRequest::default()
        };
        match self.quick.create_network(request).await {
            Err(answer) if status(&answer) == Some(409) => Ok(()),
            made => made.changing("make the session's network").map(drop).map_err(|fault| {
                let full = fault.kind == ErrorKind::Capacity;
                let advice =
                    if full { "; give the engine more or smaller default-address-pools" } else { "" };
                Fault { message: format!("{}{advice}", fault.message), ..fault }
            }),
        }
    }

    /// The gateways of a network: the engine's host, as its containers see it.
    pub(crate) async fn gateways(&self, network: &str) -> Result<Vec<IpAddr>, Fault> {
        let network =
            self.quick.inspect_network(network, None).await.asking("look at the session's network")?;
        let pools = network.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
        Ok(pools.into_iter().filter_map(|pool| pool.gateway?.split('/').next()?.parse().ok()).collect())
    }

    /// Removes the networks of a sandbox. One to which something is still attached is an error; asking again is right.
    pub(crate) async fn remove_networks(&self, names: &Names, id: &SandboxId) -> Result<(), Fault> {
        for network in self.networks(names, Some(&names.sandbox(id))).await? {
            self.remove_network(&network.0).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove_network(&self, network: &str) -> Result<(), Fault> {
        self.quick.remove_network(network).await.if_there("remove the session's network").map(drop)
    }

    /// The ids and names of this instance's networks for sessions.
    pub(crate) async fn networks(
        &self,
        names: &Names,
        called: Option<&str>,
    ) -> Result<Vec<(String, String)>, Fault> {
        let filters = HashMap::from([(
            "label".to_owned(),
            vec![format!("{INSTANCE}={}", names.instance()), format!("{ROLE}={}", Role::Session.as_str())],
        )]);
        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        let networks = self.quick.list_networks(Some(options)).await.asking("list networks")?;
        let named = networks.into_iter().filter_map(|network| Some((network.id?, network.name?)));
        Ok(named.filter(|(_, name)| called.is_none_or(|called| called == name)).collect())
    }
}
