//! Pictures of conversations. Messages name them; their bytes are files of one folder, for as long as somebody uses them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hermes_types::{Digest, Image, ImageKind};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::vision;

/// Bytes of one picture, and of all pictures of one request: in base64 they are less than the 32 MB that Anthropic takes.
pub const LARGEST: u64 = 20 << 20;
/// How long a picture that nobody uses is kept.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Digits of a digest, which the names of all files here begin with.
const DIGITS: usize = 64;

/// No two copies of a process have the same name.
static COPIES: AtomicU64 = AtomicU64::new(0);

/// The folder with the bytes of pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Album {
    folder: PathBuf,
}

/// Why a file was not kept as a picture.
#[derive(Debug, thiserror::Error)]
pub enum Unkept {
    /// It is none, or of a kind that models are not shown.
    #[error("it is no PNG, JPEG, GIF or WebP picture")]
    NoPicture,
    /// It is too large to be shown.
    #[error("it is too large: {0} bytes, at most {LARGEST} are shown to a model")]
    TooLarge(u64),
    /// It cannot be read, or not be kept.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Album {
    /// The album of a home.
    pub fn new(home: &Path) -> Self {
        Self { folder: home.join("cache/images") }
    }

    /// Keeps the bytes of a file, if they are a picture.
    pub async fn keep(&self, file: &Path) -> Result<Image, Unkept> {
        let (album, file) = (self.clone(), file.to_owned());
        spawn_blocking(move || album.copy(&file)).await.map_err(io::Error::other)?
    }

    fn copy(&self, file: &Path) -> Result<Image, Unkept> {
        let mut file = File::open(file)?;
        let size = file.metadata()?.len();
        let mut first = Vec::new();
        (&mut file).take(16).read_to_end(&mut first)?;
        let kind = ImageKind::detect(&first).ok_or(Unkept::NoPicture)?;
        let mut bytes = first;
        if size <= LARGEST {
            file.take(LARGEST).read_to_end(&mut bytes)?;
        }
        // What is no regular file has no size before it was read.
        let size = size.max(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if size > LARGEST {
            return Err(Unkept::TooLarge(size));
        }
        let image = Image { sha256: digest(&bytes), kind, size };
        self.write(&image, &bytes)?;
        Ok(image)
    }

    /// Writes beside the file and renames it: it is whole or not there.
    fn write(&self, image: &Image, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{}-{number}", image.file_name(), std::process::id());
        let beside = self.folder.join(name);
        let written = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(bytes)?;
            fs::rename(&beside, self.path(image))
        };
        written().inspect_err(|_| {
            fs::remove_file(&beside).ok();
        })
    }

    fn path(&self, image: &Image) -> PathBuf {
        self.folder.join(image.file_name())
    }

    /// The bytes of a picture, which counts as using it; none if they are not kept any more, or others are.
    fn read(&self, image: &Image) -> Option<Vec<u8>> {
        let mut file = OpenOptions::new().read(true).write(true).open(self.path(image)).ok()?;
        file.set_modified(SystemTime::now()).ok()?;
        let mut bytes = Vec::new();
        (&mut file).take(image.size).read_to_end(&mut bytes).ok()?;
        (digest(&bytes) == image.sha256).then_some(bytes)
    }

    /// Removes the pictures that nobody has used for a day. Files of others are left alone.
    pub fn forget(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.get(..DIGITS)).unwrap_or_default();
            let is_ours = Digest::try_from(digits.to_owned()).is_ok();
            let changed = entry.metadata().and_then(|found| found.modified());
            let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > KEPT));
            if is_ours
                && is_old
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "an old picture cannot be removed");
            }
        }
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::new(Sha256::digest(bytes).into())
}

/// How a model is shown pictures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Sight {
    /// Not at all: it reads where the files are.
    #[default]
    Text,
    /// If its server takes them; one that does not is asked without them.
    Auto(Album),
    /// Whatever its server says.
    Native(Album),
}

impl Sight {
    fn album(&self) -> Option<&Album> {
        match self {
            Self::Text => None,
            Self::Auto(album) | Self::Native(album) => Some(album),
        }
    }

    /// The bytes of pictures, for one request.
    pub(crate) async fn load<'a>(&self, images: &[&'a Image]) -> Pictures<'a> {
        let Some(album) = self.album().filter(|_| !images.is_empty()).cloned() else {
            return Pictures::default();
        };
        let wanted: BTreeMap<Digest, Image> =
            images.iter().map(|image| (image.sha256.clone(), (*image).clone())).collect();
        let read = move || {
            let read = |(digest, image)| Some((digest, STANDARD.encode(album.read(&image)?)));
            wanted.into_iter().filter_map(read).collect()
        };
        let data: BTreeMap<Digest, String> = spawn_blocking(read).await.unwrap_or_default();
        let shown = images.iter().copied().filter(|image| data.contains_key(&image.sha256)).collect();
        Pictures { shown, data }
    }
}

/// Pictures in base64.
#[derive(Debug, Default)]
pub(crate) struct Pictures<'a> {
    /// Those whose bytes are here, each at its place in the conversation.
    pub(crate) shown: Vec<&'a Image>,
    data: BTreeMap<Digest, String>,
}

impl Pictures<'_> {
    /// The media types and the base64 of those of these pictures that are sent.
    pub(crate) fn of(&self, images: &[&Image]) -> Vec<(&'static str, &str)> {
        let shown = images.iter().filter(|image| vision::contains_position(&self.shown, image));
        shown
            .filter_map(|image| Some((image.kind.media_type(), self.data.get(&image.sha256)?.as_str())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand more";

    fn listed(album: &Album) -> Vec<String> {
        let entries = fs::read_dir(&album.folder).unwrap();
        let mut names: Vec<_> = entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_picture_is_kept_once_and_privately_whatever_its_name() {
        let home = tempfile::tempdir().unwrap();
        let album = Album::new(home.path());
        let file = home.path().join("notes.txt");
        fs::write(&file, PNG).unwrap();
        let image = album.keep(&file).await.unwrap();
        assert_eq!(album.keep(&file).await.unwrap(), image);
        assert_eq!((image.kind, image.size), (ImageKind::Png, PNG.len() as u64));
        assert_eq!(listed(&album), [image.file_name()]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&album.path(&image)), mode(&album.folder)), (0o600, 0o700));
        assert_eq!(album.read(&image).unwrap(), PNG);
        fs::write(album.path(&image), PNG.to_ascii_uppercase()).unwrap();
        assert_eq!(album.read(&image), None);
    }

    #[tokio::test]
    async fn what_is_no_picture_or_too_large_is_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let album = Album::new(home.path());
        let file = home.path().join("a.png");
        fs::write(&file, "text").unwrap();
        assert!(matches!(album.keep(&file).await, Err(Unkept::NoPicture)));
        fs::write(&file, [PNG, &vec![0; usize::try_from(LARGEST).unwrap()]].concat()).unwrap();
        assert!(matches!(album.keep(&file).await, Err(Unkept::TooLarge(_))));
        assert!(matches!(album.keep(&home.path().join("none")).await, Err(Unkept::Io(_))));
        assert!(!album.folder.exists());
    }

    #[tokio::test]
    async fn a_picture_is_forgotten_a_day_after_it_was_used_last() {
        let home = tempfile::tempdir().unwrap();
        let album = Album::new(home.path());
        let file = home.path().join("a");
        fs::write(&file, PNG).unwrap();
        let image = album.keep(&file).await.unwrap();
        let (path, other) = (album.path(&image), album.folder.join("img_0123456789ab.png"));
        fs::write(&other, PNG).unwrap();
        let half = album.folder.join(format!("{}.7-0", image.file_name()));
        fs::write(&half, "half").unwrap();
        let age = |path: &Path| {
            let long_ago = SystemTime::now() - KEPT - Duration::from_secs(60);
            OpenOptions::new().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        };
        [&path, &other, &half].into_iter().for_each(|path| age(path));
        assert!(album.read(&image).is_some());
        album.forget();
        assert_eq!(listed(&album), [image.file_name(), "img_0123456789ab.png".to_owned()]);
        age(&path);
        album.forget();
        assert_eq!(album.read(&image), None);
        assert!(other.exists());
    }
}
