//! The database of this home.

use hermes_store::{Error, FILE_NAME, Store};

use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::file::create_private_dir;

/// The database, if there is one: nothing that only looks makes it.
pub async fn find(context: &ConfigContext) -> Result<Option<Store>, Failure> {
    Store::open_existing(context.home.path().join(FILE_NAME)).await.map_err(store_failure)
}

/// The database, made where there is none.
pub async fn open(context: &ConfigContext) -> Result<Store, Failure> {
    let home = context.home.path();
    create_private_dir(home)
        .map_err(|error| Failure::new(FailureKind::Failed, format!("{}: {error}", home.display())))?;
    Store::open(home.join(FILE_NAME)).await.map_err(store_failure)
}

/// What a person is told when the store does not do something.
pub fn store_failure(error: Error) -> Failure {
    let kind = match &error {
        Error::Ambiguous { .. } => FailureKind::Usage,
        Error::Busy { .. } => FailureKind::Unavailable,
        _ => FailureKind::Failed,
    };
    let failure = Failure::new(kind, error.to_string());
    match error.hint() {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}
