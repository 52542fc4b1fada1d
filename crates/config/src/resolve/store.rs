//! The database of this home.

use hermes_store::{Error, FILE_NAME, Store};

use crate::ConfigContext;
use crate::failure::{Failure, Kind};
use crate::file::make_home;

/// The database, if there is one: nothing that only looks makes it.
pub async fn find(context: &ConfigContext) -> Result<Option<Store>, Failure> {
    Store::open_existing(context.home.path().join(FILE_NAME)).await.map_err(told)
}

/// The database, made where there is none.
pub async fn open(context: &ConfigContext) -> Result<Store, Failure> {
    let home = context.home.path();
    make_home(home).map_err(|error| Failure::new(Kind::Failed, format!("{}: {error}", home.display())))?;
    Store::open(home.join(FILE_NAME)).await.map_err(told)
}

/// What a person is told when the store does not do something.
pub fn told(error: Error) -> Failure {
    let kind = match &error {
        Error::Ambiguous { .. } => Kind::Usage,
        Error::Busy { .. } => Kind::Unavailable,
        _ => Kind::Failed,
    };
    let failure = Failure::new(kind, error.to_string());
    match error.hint() {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}
