//! `hermes sandbox pull`: pulls or updates an image.

use hermes_exec::backend::docker::pull::{self, PullEvent};
use serde_json::json;

use crate::command::config::settings;
use crate::progress::{PullOutput, PullView, format_megabytes};
use crate::{Context, Result};
use hermes_config::resolve::engine;
use hermes_config::resolve::image::pull_settings;

pub(super) async fn pull(image: &str, context: &Context) -> Result<()> {
    let config = settings(context)?;
    let engine = engine::find(context, config)?.address;
    let settings = pull_settings(context, config);
    let mut view = PullView::new(image, PullOutput::Layers);
    let on_event = |event: PullEvent<'_>| match event {
        PullEvent::CredentialsUnavailable(error) => context.warn(&error.warning()),
        PullEvent::Progress(progress) => view.show(progress),
        PullEvent::Started | PullEvent::Finished { .. } => {}
    };
    let pulled = pull::refresh_image(&engine, image, &settings, on_event).await;
    view.finish();
    let (before, now) = pulled?;
    let is_new = before.is_none_or(|before| before.id != now.id);
    let document = json!({"image": image, "digest": now.digest, "bytes": now.bytes, "pulled": is_new});
    let result = if is_new { "pulled" } else { "already up to date:" };
    let digest = now.digest.unwrap_or(now.id);
    context.screen.print(&document, &format!("{result} {image}, {}, {digest}", format_megabytes(now.bytes)))
}
