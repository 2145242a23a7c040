//! A Docker or podman engine, as these tests need one.

use std::collections::HashMap;
use std::fs::File;

use bollard::Docker;
use bollard::body_full;
use bollard::models::{ContainerCreateBody, HostConfig, ImageConfig};
use bollard::query_parameters::{
    BuildImageOptions, CreateContainerOptions, CreateImageOptionsBuilder, ListImagesOptionsBuilder,
    LogsOptionsBuilder, RemoveContainerOptionsBuilder, RemoveImageOptions, StartContainerOptions,
    TagImageOptionsBuilder, WaitContainerOptions,
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use crate::build::Build;

/// Before the names of everything that these tests leave in an engine.
const REPOSITORY: &str = "outpost-test-images";
/// An archive of two gigabytes is on its way for longer than bollard's default of two minutes.
const PATIENCE_SECS: u64 = 1800;

/// An engine. Images that are made are kept by name; containers are removed.
#[derive(Debug)]
pub(crate) struct Engine {
    docker: Docker,
}

/// How a program in a container ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i64,
    /// What it printed on both outputs.
    pub(crate) output: String,
}

/// As which kind of container a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// What the engine gives by default.
    Default,
    /// `no-new-privileges`, as Outpost's sessions have it: sudo does nothing.
    Session,
}

impl Engine {
    /// The engine that `OUTPOST_TEST_DOCKER` names.
    pub(crate) async fn connect() -> Self {
        let address = std::env::var("OUTPOST_TEST_DOCKER").expect(
            "set OUTPOST_TEST_DOCKER to an engine on this machine, such as unix:///var/run/docker.sock",
        );
        let docker = match address.strip_prefix("unix://") {
            Some(path) => Docker::connect_with_unix(path, PATIENCE_SECS, bollard::API_DEFAULT_VERSION),
            None => Docker::connect_with_http(&address, PATIENCE_SECS, bollard::API_DEFAULT_VERSION),
        };
        let docker =
            docker.expect("an address of an engine").negotiate_version().await.expect("an engine answers");
        Self { docker }
    }

    /// Waits for this test's turn to make or remove what is shared, also with tests in other processes. Dropping the file ends the turn.
    pub(crate) async fn turn(&self) -> File {
        let path = std::env::temp_dir().join("outpost-test-images.lock");
        let file = File::options().create(true).append(true).open(path).unwrap();
        tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await.unwrap().unwrap()
    }

    /// The full name of a shared image.
    pub(crate) fn name(image: &str, version: &str) -> String {
        format!("localhost/{REPOSITORY}/{image}:{version}")
    }

    pub(crate) async fn has(&self, image: &str) -> bool {
        self.docker.inspect_image(image).await.is_ok()
    }

    /// An image's configuration.
    pub(crate) async fn config(&self, image: &str) -> ImageConfig {
        self.docker.inspect_image(image).await.unwrap().config.expect("every image has a configuration")
    }

    pub(crate) async fn id(&self, image: &str) -> String {
        self.docker.inspect_image(image).await.unwrap().id.expect("every image has an id")
    }

    /// Makes an image of the archive of a file system.
    pub(crate) async fn import(&self, archive: Bytes, image: &str) {
        let (repository, tag) = image.rsplit_once(':').unwrap();
        let options = CreateImageOptionsBuilder::new().from_src("-").repo(repository).tag(tag).build();
        let answers = self.docker.create_image(Some(options), Some(body_full(archive)), None);
        let last = answers.try_collect::<Vec<_>>().await.unwrap().pop();
        if !self.has(image).await {
            // podman does not take the name.
            let id = last.and_then(|info| info.status).expect("the import says which image it has made");
            let options = TagImageOptionsBuilder::new().repo(repository).tag(tag).build();
            self.docker.tag_image(id.trim(), Some(options)).await.unwrap();
        }
    }

    /// Builds an image on the host's network, so that the build reaches this machine's loopback. An image that had the name is removed.
    ///
    /// # Errors
    /// What the build printed, when it failed.
    pub(crate) async fn build(&self, build: Build) -> Result<String, String> {
        let options = BuildImageOptions {
            dockerfile: build.dockerfile,
            t: Some(build.image.clone()),
            buildargs: Some(build.args),
            networkmode: Some("host".into()),
            rm: true,
            forcerm: true,
            ..BuildImageOptions::default()
        };
        let before = self.docker.inspect_image(&build.image).await.ok().and_then(|image| image.id);
        let mut answers = self.docker.build_image(options, None, Some(body_full(build.context)));
        let mut log = String::new();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(info) => log.push_str(info.stream.as_deref().unwrap_or_default()),
                Err(error) => return Err(format!("{log}{error}")),
            }
        }
        match self.docker.inspect_image(&build.image).await {
            Ok(now) => {
                if let Some(old) = before.filter(|old| now.id.as_ref() != Some(old)) {
                    self.remove(&old).await;
                }
                Ok(log)
            }
            Err(_) => Err(log),
        }
    }

    /// Runs a program in a container of its own, as the image's user and in its working directory.
    pub(crate) async fn run(&self, image: &str, rights: Rights, command: &[&str]) -> Ended {
        let (&program, arguments) = command.split_first().unwrap();
        let secured = (rights == Rights::Session).then(|| vec!["no-new-privileges".to_owned()]);
        let body = ContainerCreateBody {
            image: Some(image.into()),
            entrypoint: Some(vec![program.into()]),
            cmd: Some(arguments.iter().map(|&word| word.to_owned()).collect()),
            labels: Some(HashMap::from([(REPOSITORY.to_owned(), String::new())])),
            host_config: Some(HostConfig { security_opt: secured, ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        let id = self.docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
        let ended = self.run_to_its_end(&id).await;
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        self.docker.remove_container(&id, Some(options)).await.unwrap();
        ended.unwrap()
    }

    async fn run_to_its_end(&self, id: &str) -> Result<Ended, bollard::errors::Error> {
        self.docker.start_container(id, None::<StartContainerOptions>).await?;
        let code = match self.docker.wait_container(id, None::<WaitContainerOptions>).next().await {
            Some(Ok(answer)) => answer.status_code,
            Some(Err(bollard::errors::Error::DockerContainerWaitError { code, .. })) => code,
            Some(Err(error)) => return Err(error),
            None => -1,
        };
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).build();
        let output =
            self.docker.logs(id, Some(options)).map_ok(|line| line.to_string()).try_collect().await?;
        Ok(Ended { code, output })
    }

    /// Everything of an image as an archive, as `docker save` writes it.
    pub(crate) fn save(&self, image: &str) -> impl Stream<Item = std::io::Result<Bytes>> + use<> {
        self.docker.export_image(image).map_err(std::io::Error::other)
    }

    /// Removes an image if it is there.
    pub(crate) async fn remove(&self, image: &str) {
        let _ = self.docker.remove_image(image, None::<RemoveImageOptions>, None).await;
    }

    /// Removes all versions of a shared image but one.
    pub(crate) async fn remove_other_versions(&self, image: &str) {
        let (repository, _) = image.rsplit_once(':').unwrap();
        let filters = HashMap::from([("reference", vec![repository])]);
        let options = ListImagesOptionsBuilder::new().filters(&filters).build();
        let listed = self.docker.list_images(Some(options)).await.unwrap();
        for tag in listed.into_iter().flat_map(|listed| listed.repo_tags) {
            if tag != image && tag.starts_with(&format!("{repository}:")) {
                self.remove(&tag).await;
            }
        }
    }
}
