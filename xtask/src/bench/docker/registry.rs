//! A real registry next to the peer `docker`, with one image that the engine does not have.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::peers;

/// The address of the registry, on the loopback interface of the engine's namespace.
const HOST: &str = "127.0.0.1:50505";
/// Random data cannot be compressed or cached, so the pull takes a while.
const NOISE: &str = "head -c 40000000 /dev/urandom >/noise";
const START_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Registry {
    server: Child,
    env: Vec<(&'static str, OsString)>,
    /// The full name of the image.
    pub(super) image: String,
}

impl Registry {
    /// Starts a registry that stores its files in this directory.
    pub(super) fn new(folder: &Path, base: &str, env: &[(&'static str, OsString)]) -> Result<Self> {
        let config = serde_json::json!({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": folder.join("store")}},
            "http": {"addr": HOST, "secret": "benchmark"},
        });
        fs::create_dir_all(folder)?;
        fs::write(folder.join("config.yml"), config.to_string())?;
        let mut serve = Command::new("nsenter");
        serve.args(["--net", "--target", &peers::docker_process()?.to_string(), "docker-registry", "serve"]);
        serve.arg(folder.join("config.yml"));
        let server = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.context("docker-registry")?;
        let registry = Self { server, env: env.to_vec(), image: format!("{HOST}/leftovers:v1") };
        registry.push_image(base)?;
        Ok(registry)
    }

    fn push_image(&self, base: &str) -> Result<()> {
        let name = format!("hermes-bench-noise-{}", std::process::id());
        self.docker(&["run", "--name", &name, base, "sh", "-c", NOISE])?;
        let committed = self.docker(&["commit", &name, &self.image]);
        self.docker(&["rm", "--force", "--volumes", &name])?;
        committed?;
        let deadline = Instant::now() + START_TIMEOUT;
        // The registry needs a moment until it listens.
        while let Err(error) = self.docker(&["push", &self.image]) {
            ensure!(Instant::now() < deadline, "{error:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
        self.remove_image()
    }

    /// Removes the image from the engine, with the containers made from it.
    pub(super) fn remove_image(&self) -> Result<()> {
        self.docker(&["image", "rm", "--force", &self.image])
    }

    fn docker(&self, words: &[&str]) -> Result<()> {
        let output = Command::new("docker").args(words).envs(self.env.clone()).output().context("docker")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "docker {words:?} ended with {}: {stderr}", output.status);
        Ok(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Err(error) = self.remove_image() {
            eprintln!("{error:#}");
        }
        // The registry may have ended by itself.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
