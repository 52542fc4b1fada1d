//! Pictures that are shown with a message.

use std::path::{Path, PathBuf};

use hermes_agent::UserInput;
use hermes_store::ImageStore;
use hermes_types::BackendName;

use crate::screen::one_line;
use hermes_config::failure::{Failure, FailureKind};

/// Characters of a path that the model reads.
const SHOWN: usize = 400;

/// A message with pictures, and with a line about each: not every model sees.
pub(super) async fn user_input(
    text: &str,
    files: &[PathBuf],
    image_store: &ImageStore,
    backend: BackendName,
) -> Result<UserInput, Failure> {
    let line = |path: &Path| one_line(&path.to_string_lossy(), SHOWN);
    let (mut lines, mut images) = (Vec::new(), Vec::new());
    for file in files {
        let refused =
            |why| Failure::new(FailureKind::Usage, format!("{} cannot be shown: {why}", file.display()));
        let image = image_store.add(file).await.map_err(refused)?;
        // Only on this machine it is there under the same path.
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
