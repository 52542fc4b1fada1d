//! Image files. Messages name images by digest; the bytes are files of one directory of the home.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hermes_types::{Digest, Image, ImageKind, create_private_dir};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

/// How long an image is kept after its last use.
const RETENTION: Duration = Duration::from_secs(24 * 3_600);
/// Hexadecimal digits of a digest. All file names of the store begin with one.
const DIGEST_LEN: usize = 64;

/// The directory with the bytes of images.
#[derive(Debug, Clone)]
pub struct ImageStore {
    dir: PathBuf,
}

/// Why a file was not stored as an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("not a PNG, JPEG, GIF or WebP image")]
    NotAnImage,
    #[error("too large: {0} bytes; the limit is {limit} bytes", limit = Image::MAX_BYTES)]
    TooLarge(u64),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ImageStore {
    pub fn new(home: &Path) -> Self {
        Self { dir: home.join("cache/images") }
    }

    /// Stores a copy of an image file.
    pub async fn add(&self, file: &Path) -> Result<Image, ImageError> {
        let (store, file) = (self.clone(), file.to_owned());
        spawn_blocking(move || store.copy(&file)).await.map_err(io::Error::other)?
    }

    fn copy(&self, file: &Path) -> Result<Image, ImageError> {
        let mut file = File::open(file)?;
        let size = file.metadata()?.len();
        let mut bytes = Vec::new();
        (&mut file).take(16).read_to_end(&mut bytes)?;
        let kind = ImageKind::detect(&bytes).ok_or(ImageError::NotAnImage)?;
        if size <= Image::MAX_BYTES {
            file.take(Image::MAX_BYTES).read_to_end(&mut bytes)?;
        }
        // The metadata of a file that is not regular has no size.
        let size = size.max(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if size > Image::MAX_BYTES {
            return Err(ImageError::TooLarge(size));
        }
        let image = Image { sha256: digest(&bytes), kind, size };
        create_private_dir(&self.dir)?;
        let name = format!("{}.", image.file_name());
        let mut written = tempfile::Builder::new().prefix(&name).tempfile_in(&self.dir)?;
        written.write_all(&bytes)?;
        written.persist(self.path(&image)).map_err(|error| error.error)?;
        Ok(image)
    }

    fn path(&self, image: &Image) -> PathBuf {
        self.dir.join(image.file_name())
    }

    /// The bytes of an image, or none if they are gone or damaged. This counts as a use.
    pub fn load(&self, image: &Image) -> Option<Vec<u8>> {
        let mut file = OpenOptions::new().read(true).write(true).open(self.path(image)).ok()?;
        file.set_modified(SystemTime::now()).ok()?;
        let mut bytes = Vec::new();
        (&mut file).take(image.size).read_to_end(&mut bytes).ok()?;
        (digest(&bytes) == image.sha256).then_some(bytes)
    }

    /// Deletes the images that were not used for a day. Files with other names stay.
    pub fn prune(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.get(..DIGEST_LEN)).unwrap_or_default();
            let is_ours = Digest::try_from(digits.to_owned()).is_ok();
            let changed = entry.metadata().and_then(|found| found.modified());
            let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > RETENTION));
            if is_ours
                && is_old
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "cannot delete old image");
            }
        }
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::new(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand more";

    fn file_names(images: &ImageStore) -> Vec<String> {
        let entries = fs::read_dir(&images.dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn an_image_is_stored_once_and_privately_under_any_name() {
        let home = tempfile::tempdir().unwrap();
        let images = ImageStore::new(home.path());
        let file = home.path().join("notes.txt");
        fs::write(&file, PNG).unwrap();
        let image = images.add(&file).await.unwrap();
        assert_eq!(images.add(&file).await.unwrap(), image);
        assert_eq!((image.kind, image.size), (ImageKind::Png, PNG.len() as u64));
        assert_eq!(file_names(&images), [image.file_name()]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&images.path(&image)), mode(&images.dir)), (0o600, 0o700));
        assert_eq!(images.load(&image).unwrap(), PNG);
        fs::write(images.path(&image), PNG.to_ascii_uppercase()).unwrap();
        assert_eq!(images.load(&image), None);
    }

    #[tokio::test]
    async fn other_files_and_large_images_are_rejected() {
        let home = tempfile::tempdir().unwrap();
        let images = ImageStore::new(home.path());
        let file = home.path().join("a.png");
        fs::write(&file, "text").unwrap();
        assert!(matches!(images.add(&file).await, Err(ImageError::NotAnImage)));
        fs::write(&file, [PNG, &vec![0; usize::try_from(Image::MAX_BYTES).unwrap()]].concat()).unwrap();
        assert!(matches!(images.add(&file).await, Err(ImageError::TooLarge(_))));
        assert!(matches!(images.add(&home.path().join("none")).await, Err(ImageError::Io(_))));
        assert!(!images.dir.exists());
    }

    #[tokio::test]
    async fn an_image_is_deleted_a_day_after_its_last_use() {
        let home = tempfile::tempdir().unwrap();
        let images = ImageStore::new(home.path());
        let file = home.path().join("a");
        fs::write(&file, PNG).unwrap();
        let image = images.add(&file).await.unwrap();
        let (path, other) = (images.path(&image), images.dir.join("img_0123456789ab.png"));
        fs::write(&other, PNG).unwrap();
        let half = images.dir.join(format!("{}.7-0", image.file_name()));
        fs::write(&half, "half").unwrap();
        let age = |path: &Path| {
            let long_ago = SystemTime::now() - RETENTION - Duration::from_secs(60);
            OpenOptions::new().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        };
        [&path, &other, &half].into_iter().for_each(|path| age(path));
        assert!(images.load(&image).is_some());
        images.prune();
        assert_eq!(file_names(&images), [image.file_name(), "img_0123456789ab.png".to_owned()]);
        age(&path);
        images.prune();
        assert_eq!(images.load(&image), None);
        assert!(other.exists());
    }
}
