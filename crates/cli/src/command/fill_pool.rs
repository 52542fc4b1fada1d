//! `hermes fill-pool`, which `hermes exec` leaves running: starts containers in advance and exits.

use hermes_exec::ResolvedPlace;

use super::keep_proxy::own_command;
use crate::args::PlaceArgs;
use crate::command::config::settings;
use crate::{Context, Result, block_on};
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, SessionChoice};

/// Starts the process, if the backend has a warm pool.
pub(crate) fn start(context: &Context, request: &PlaceRequest, resolved: &ResolvedPlace) -> Result<()> {
    if !resolved.has_warm_pool() {
        return Ok(());
    }
    let mut command = own_command(context)?;
    command.args(["fill-pool", "--backend", resolved.backend_name().as_str()]);
    if let Some(image) = &request.image {
        command.args(["--image", image]);
    }
    command.spawn()?;
    Ok(())
}

pub(crate) fn run(args: &PlaceArgs, context: &Context) -> Result<()> {
    // The process must survive the terminal that started it.
    rustix::process::setsid().map_err(std::io::Error::from)?;
    let config = settings(context)?;
    let request = args.request();
    let session = SessionChoice::new(&request, config)?;
    let resolved = resolve::resolve_place(context, config, &request, &session, ResolveMode::Create)?;
    block_on(async { Ok(resolved.fill_warm_pool().await?) })
}
