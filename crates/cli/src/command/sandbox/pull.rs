//! `hermes sandbox pull`: pulls or updates an image.

use hermes_exec::backend::docker::pull;
use serde_json::json;

use crate::Context;
use crate::command::config::settings;
use crate::progress::{PullOutput, PullView, format_megabytes};
use hermes_config::failure::Failure;
use hermes_config::resolve::engine;
use hermes_config::resolve::image::{pull_options, pull_settings};

pub(super) async fn pull(image: &str, context: &Context) -> Result<(), Failure> {
    let config = settings(context)?;
    let engine = engine::find(context, config).map_err(|error| engine::engine_failure(&error))?.address;
    let settings = pull_settings(context, config);
    let options = pull_options(&settings, image, |message| context.warn(message)).await;
    let mut view = PullView::new(image, PullOutput::Layers);
    let pulled = pull::refresh_image(&engine, image, &options, |progress| view.show(progress)).await;
    view.finish();
    let (before, now) = pulled?;
    let is_new = before.is_none_or(|before| before.id != now.id);
    let screen = context.screen;
    if screen.is_json() {
        return screen
            .json(&json!({"image": image, "digest": now.digest, "bytes": now.bytes, "pulled": is_new}));
    }
    let result = if is_new { "pulled" } else { "already up to date:" };
    let digest = now.digest.unwrap_or(now.id);
    screen.line(&format!("{result} {image}, {}, {digest}", format_megabytes(now.bytes)))
}
