//! The database of this home.

use hermes_store::{Error, FILE_NAME, Store};
use hermes_types::create_private_dir;

use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};

/// Opens the database if it exists. Read-only commands do not create it.
pub async fn find(context: &ConfigContext) -> Result<Option<Store>, Failure> {
    Ok(Store::open_existing(context.home.path().join(FILE_NAME)).await?)
}

/// Opens the database and creates it if it does not exist.
pub async fn open(context: &ConfigContext) -> Result<Store, Failure> {
    let home = context.home.path();
    create_private_dir(home).map_err(|error| Failure::failed(format!("{}: {error}", home.display())))?;
    Ok(Store::open(home.join(FILE_NAME)).await?)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Ambiguous { .. } => FailureKind::Usage,
            Error::Busy { .. } => FailureKind::Unavailable,
            _ => FailureKind::Failed,
        };
        Self { kind, message: error.to_string(), hints: error.hint().into_iter().collect() }
    }
}
