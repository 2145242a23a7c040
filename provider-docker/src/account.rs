//! Who the worker is in a sandbox: looked up in its `/etc/passwd`.

use std::io::Read as _;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder};
use futures::TryStreamExt as _;
use outpost_provider_kit::Fault;

use crate::engine::Engine;
use crate::fault::{Asking as _, status};
use crate::names::{Names, Role};

/// A longer file is not read: it comes out of a sandbox.
const MAX_BYTES: usize = 1 << 20;

/// A user of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: String,
}

impl Engine {
    /// The account of `user` (a name or number, perhaps with a group; empty = root) in an image, seen through a container
    /// that is never started.
    pub(crate) async fn account_of_image(
        &self,
        names: &Names,
        image: &str,
        user: &str,
    ) -> Result<Account, Fault> {
        let digits = image.rsplit(':').next().unwrap_or(image);
        let name = format!("{}-look", names.program(&digits[..digits.len().min(20)]));
        let container = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["/nothing".to_owned()]),
            labels: Some(names.labels(Role::Helper)),
            host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        match self.quick.create_container(Some(options), container).await {
            // Another session that starts from the same image looks, too.
            Err(answer) if status(&answer) == Some(409) => {}
            made => made.changing("make a container to look into the image").map(drop)?,
        }
        let passwd = self.small_file(&name, "/etc/passwd").await;
        self.discard(&name).await?;
        Ok(find(&passwd?.unwrap_or_default(), user))
    }

    /// The text of a small file of a container; `None` when it is not there or not small.
    async fn small_file(&self, container: &str, path: &str) -> Result<Option<String>, Fault> {
        let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
        let mut stream = self.quick.download_from_container(container, Some(options));
        let mut archive = Vec::new();
        let what = format!("read {path} in the container");
        while let Some(Some(bytes)) = stream.try_next().await.if_there(&what)? {
            archive.extend_from_slice(&bytes);
            if archive.len() > MAX_BYTES {
                return Ok(None);
            }
        }
        let text = || {
            let mut entries = tar::Archive::new(archive.as_slice());
            let mut text = String::new();
            entries.entries().ok()?.next()?.ok()?.read_to_string(&mut text).ok()?;
            Some(text)
        };
        Ok(text())
    }
}

fn find(passwd: &str, user: &str) -> Account {
    let user = user.split(':').next().unwrap_or_default();
    let wanted = if user.is_empty() { "0" } else { user };
    let account = passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else { return None };
        (name == wanted || number == wanted).then(|| Account { name: name.to_owned(), home: home.to_owned() })
    });
    account.filter(|account| account.home.starts_with('/')).unwrap_or_else(|| match wanted {
        "0" | "root" => Account { name: "root".to_owned(), home: "/root".to_owned() },
        // As engines do it with a number that nobody has.
        other => Account { name: other.to_owned(), home: "/".to_owned() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\ndevin:x:1000:1000::/home/devin:/bin/sh\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let devin = Account { name: "devin".into(), home: "/home/devin".into() };
        for user in ["devin", "1000", "devin:users", "1000:7"] {
            assert_eq!(find(PASSWD, user), devin, "{user}");
        }
        assert_eq!(find(PASSWD, "").name, "root");
    }

    #[test]
    fn a_user_whom_nobody_knows_has_a_home_all_the_same() {
        assert_eq!(find(PASSWD, "4711"), Account { name: "4711".into(), home: "/".into() });
        assert_eq!(find("", ""), Account { name: "root".into(), home: "/root".into() });
    }
}
