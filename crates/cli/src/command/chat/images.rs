//! Images sent with a message.

use std::path::{Path, PathBuf};

use hermes_agent::UserInput;
use hermes_store::ImageStore;
use hermes_types::BackendName;

use crate::screen::one_line;
use crate::{Failure, Result};

const MAX_PATH_CHARS: usize = 400;

/// A message with images, and a line about each for models without vision.
pub(super) async fn user_input(
    text: &str,
    files: &[PathBuf],
    image_store: &ImageStore,
    backend: BackendName,
) -> Result<UserInput> {
    let line = |path: &Path| one_line(&path.to_string_lossy(), MAX_PATH_CHARS);
    let (mut lines, mut images) = (Vec::new(), Vec::new());
    for file in files {
        let refuse = |error| Failure::usage(format!("cannot send {}: {error}", file.display()));
        let image = image_store.add(file).await.map_err(refuse)?;
        // The path is valid only on this machine.
        let place = match (backend, std::path::absolute(file)) {
            (BackendName::Local, Ok(path)) => format!(", at {}", line(&path)),
            _ => String::new(),
        };
        let name = line(Path::new(file.file_name().unwrap_or_default()));
        lines.push(format!("[file {name}: {} bytes, {}{place}]", image.size, image.kind.media_type()));
        images.push(image);
    }
    let gap = if text.is_empty() || lines.is_empty() { "" } else { "\n\n" };
    Ok(UserInput { text: format!("{text}{gap}{}", lines.join("\n")), images })
}
