//! `hermes sandbox pull`: an image, before it is needed.

use std::process::ExitCode;

use hermes_exec::backend::docker::pull;
use serde_json::json;

use crate::Context;
use crate::command::config::settings;
use crate::progress::{PullOutput, PullView, format_megabytes};
use crate::screen::OutputFormat;
use hermes_config::failure::Failure;
use hermes_config::resolve::image::{pull_options, pull_settings};
use hermes_config::resolve::{self, engine};

pub(super) async fn pull(image: &str, context: &Context) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let engine = engine::find(context, config).map_err(|fault| engine::engine_failure(&fault))?.address;
    let settings = pull_settings(context, config);
    let means = pull_options(&settings, image, |message| context.warn(message)).await;
    let mut watched = PullView::new(image, PullOutput::Layers);
    let pulled = pull::refresh_image(&engine, image, &means, |progress| watched.show(progress)).await;
    watched.finish();
    let (before, now) = pulled.map_err(resolve::place_failure)?;
    let is_new = before.is_none_or(|before| before.id != now.id);
    let screen = context.screen;
    match screen.format {
        OutputFormat::Json => screen
            .json(&json!({"image": image, "digest": now.digest, "bytes": now.bytes, "pulled": is_new}))?,
        OutputFormat::Text => {
            let done = if is_new { "pulled" } else { "already there:" };
            let digest = now.digest.unwrap_or(now.id);
            screen.line(&format!("{done} {image}, {}, {digest}", format_megabytes(now.bytes)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
