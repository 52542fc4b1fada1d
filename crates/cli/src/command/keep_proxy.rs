//! `hermes keep-proxy`, which `hermes exec` leaves running: serves the proxy of an environment
//! while processes run in it.

use std::process::{Command, Stdio};

use hermes_exec::{ResolvedPlace, proxy};
use hermes_types::Network;

use crate::args::KeepProxyArgs;
use crate::{Context, Result, block_on};

/// Starts the process, if the environment has a proxy. It exits when nothing runs in the
/// environment.
pub(crate) fn start(context: &Context, resolved: &ResolvedPlace) -> Result<()> {
    if resolved.backend().network() != Network::Proxy {
        return Ok(());
    }
    let mut command = own_command(context)?;
    command.arg("keep-proxy").arg(resolved.run_dir()).arg(resolved.name());
    command.env_clear().current_dir("/").spawn()?;
    Ok(())
}

/// This program with the same home, detached from the terminal.
#[expect(clippy::disallowed_methods, reason = "starts this program")]
pub(super) fn own_command(context: &Context) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--home").arg(context.home.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

pub(crate) fn run(args: &KeepProxyArgs) -> Result<()> {
    // The process must survive the terminal that started it.
    rustix::process::setsid().map_err(std::io::Error::from)?;
    block_on(async { Ok(proxy::serve_while_running(&args.run, &args.place).await?) })
}
