//! Looks for a text in everything that an engine shows or keeps of an instance, and in the host's processes.

use bollard::Docker;
use bollard::query_parameters::{ListContainersOptionsBuilder, ListImagesOptionsBuilder, LogsOptionsBuilder};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use outpost_core::model::InstanceId;

use super::label_filter;

/// Where `needle` stands, one line each.
pub async fn search(docker: &Docker, instance: &InstanceId, needle: &str) -> Vec<String> {
    let docker = docker.clone().negotiate_version().await.unwrap();
    let filters = label_filter(instance);
    let mut found = Vec::new();
    let mut look = |place: String, text: &str| {
        if text.contains(needle) {
            found.push(place);
        }
    };
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    for container in docker.list_containers(Some(options)).await.unwrap() {
        let id = container.id.clone().unwrap();
        look(format!("the list of containers: {id}"), &serde_json::to_string(&container).unwrap());
        if let Ok(inspected) = docker.inspect_container(&id, None).await {
            look(format!("container {id}"), &serde_json::to_string(&inspected).unwrap());
        }
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).build();
        let mut logs = docker.logs(&id, Some(options));
        let mut log = String::new();
        while let Some(Ok(part)) = logs.next().await {
            log.push_str(&part.to_string());
        }
        look(format!("the log of container {id}"), &log);
        if holds(docker.export_container(&id), needle).await {
            look(format!("the disk of container {id}"), needle);
        }
    }
    let options = ListImagesOptionsBuilder::default().all(true).filters(&filters).build();
    for image in docker.list_images(Some(options)).await.unwrap() {
        look(format!("the list of images: {}", image.id), &serde_json::to_string(&image).unwrap());
        let inspected = docker.inspect_image(&image.id).await.unwrap();
        look(format!("image {}", image.id), &serde_json::to_string(&inspected).unwrap());
        let history = docker.image_history(&image.id).await.unwrap();
        look(format!("the history of image {}", image.id), &serde_json::to_string(&history).unwrap());
        if holds(docker.export_image(&image.id), needle).await {
            look(format!("image {}, saved", image.id), needle);
        }
    }
    for (pid, words) in processes() {
        look(format!("process {pid}"), &words.join(" "));
    }
    found
}

/// Whether a stream of bytes holds a text, also across its pieces.
async fn holds(stream: impl Stream<Item = Result<Bytes, bollard::errors::Error>>, needle: &str) -> bool {
    let mut stream = std::pin::pin!(stream);
    let mut window: Vec<u8> = Vec::new();
    while let Some(Ok(bytes)) = stream.next().await {
        window.extend_from_slice(&bytes);
        if window.windows(needle.len()).any(|part| part == needle.as_bytes()) {
            return true;
        }
        let keep = window.len().saturating_sub(needle.len());
        window.drain(..keep);
    }
    false
}

/// The command lines of all processes of this machine.
pub fn processes() -> Vec<(u32, Vec<String>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        found.push((pid, words.collect()));
    }
    found
}

/// Whether a process is in a container of this id.
pub fn is_in(pid: u32, container: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|cgroup| cgroup.contains(container))
}
