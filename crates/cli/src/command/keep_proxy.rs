//! `hermes keep-proxy`, which `hermes exec` leaves behind: the way out for what runs on in a place that has no other.

use std::process::{Command, ExitCode, Stdio};

use hermes_exec::{ResolvedPlace, proxy};
use hermes_types::Network;

use crate::Context;
use crate::args::KeepProxyArgs;
use hermes_config::failure::{Failure, FailureKind};

/// Lets another process serve the proxy of a place, if it has one. That process ends when nothing runs there any more.
pub(crate) fn start(context: &Context, plan: &ResolvedPlace) -> Result<(), Failure> {
    if plan.network() != Network::Proxy {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "this program in another role")]
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--home")
        .arg(context.home.path())
        .arg("keep-proxy")
        .arg(plan.run_dir())
        .arg(plan.name())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(())
}

pub(crate) fn run(args: &KeepProxyArgs) -> Result<ExitCode, Failure> {
    // Whatever ends the terminal that this was started from does not end this.
    rustix::process::setsid().map_err(std::io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let kept = runtime.block_on(proxy::serve_while_running(&args.run, &args.place));
    kept.map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
