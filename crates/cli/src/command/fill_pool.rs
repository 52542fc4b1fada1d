//! `hermes fill-pool`, which `hermes exec` leaves behind: it makes places ready for those who come next, and ends.

use std::process::{Command, ExitCode, Stdio};

use hermes_exec::ResolvedPlace;

use crate::Context;
use crate::args::PlaceArgs;
use crate::command::config::settings;
use hermes_config::failure::Failure;
use hermes_config::resolve::PlaceRequest;
use hermes_config::resolve::{self, ResolveMode, SessionChoice};

/// Lets another process make places ready, if any are wanted.
pub(crate) fn start(context: &Context, request: &PlaceRequest, plan: &ResolvedPlace) -> Result<(), Failure> {
    if !plan.has_warm_pool() {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "this program in another role")]
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--home").arg(context.home.path()).args([
        "fill-pool",
        "--backend",
        plan.backend_name().as_str(),
    ]);
    if let Some(image) = &request.image {
        command.args(["--image", image]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(())
}

pub(crate) fn run(args: &PlaceArgs, context: &Context) -> Result<ExitCode, Failure> {
    // Whatever ends the terminal that this was started from does not end this.
    rustix::process::setsid().map_err(std::io::Error::from)?;
    let config = settings(context)?;
    let request = args.request();
    let plan = resolve::resolve_place(
        context,
        config,
        &request,
        &SessionChoice::new(&request, config)?,
        ResolveMode::Create,
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(plan.fill_warm_pool()).map_err(resolve::place_failure)?;
    Ok(ExitCode::SUCCESS)
}
