//! The database of a command.

use hermes_config::resolve::store::find;
use hermes_store::Store;

use crate::{Context, Result};

/// Runs `work` on the database and closes it. Without a database the result is the default one.
pub(crate) async fn with_store<T: Default>(
    context: &Context,
    work: impl AsyncFnOnce(&Store) -> Result<T>,
) -> Result<T> {
    let Some(store) = find(context).await? else { return Ok(T::default()) };
    let result = work(&store).await;
    store.close().await;
    result
}
