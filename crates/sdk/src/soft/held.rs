//! Entries that are there as long as this program holds them, for presence: a stream that stays open at a node. When that node goes, they
//! are held at another one.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::{Soft, SoftError, failed, text_of};
use crate::limits::RETRY_AFTER;
use crate::stream::Events;

/// What is held, for as long as this lives. When it is dropped, or the program ends however it ends, the entries go at all nodes a moment
/// later, but for those that somebody else holds too.
#[derive(Debug)]
pub struct Hold(AbortHandle);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Soft {
    /// Holds members of a set. When this returns they are there.
    ///
    /// ```
    /// # async fn door(service: sdk::Service) -> Result<(), Box<dyn std::error::Error>> {
    /// let floor = service.soft("floor")?;
    /// let here = floor.hold("online", ["ann"]).await?;
    /// // ... serves ann ...
    /// drop(here);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The key has something of another kind, some nodes have a program of before held entries, or no node can be asked.
    pub async fn hold<M: Into<Bytes>>(
        &self,
        key: &str,
        members: impl IntoIterator<Item = M>,
    ) -> Result<Hold, SoftError> {
        let members: Vec<Value> = members.into_iter().map(|member| text_of(&member.into())).collect();
        self.held(key, &json!({ "members": members })).await
    }

    /// Holds fields of a hash with these values. When this returns they are there.
    ///
    /// # Errors
    /// As of [`Soft::hold`].
    pub async fn hold_fields<V: Into<Bytes>>(
        &self,
        key: &str,
        fields: impl IntoIterator<Item = (String, V)>,
    ) -> Result<Hold, SoftError> {
        let fields: BTreeMap<String, Value> =
            fields.into_iter().map(|(field, value)| (field, text_of(&value.into()))).collect();
        self.held(key, &json!({ "fields": fields })).await
    }

    async fn held(&self, key: &str, what: &Value) -> Result<Hold, SoftError> {
        // Not as part of a request: it is not over when that is.
        let asked = Self { during: None, ..self.clone() };
        let mut events = Events::new(self.node.clone(), asked.call(Method::POST, "hold", key).body(what.to_string()));
        events.open().await.map_err(|said| match said {
            Some(answer) if answer.status == StatusCode::CONFLICT => failed(&answer),
            Some(answer) if answer.status.is_client_error() => SoftError::Refused(base::Refused::wrong(answer.error())),
            Some(answer) => SoftError::Refused(base::Refused::busy(answer.error(), RETRY_AFTER)),
            None => SoftError::Refused(base::Refused::busy("no node can be asked", RETRY_AFTER)),
        })?;
        // The stream begins when the entries are there. It ends with its node, and is then opened at another one.
        let keeper = tokio::spawn(async move {
            loop {
                events.next().await;
            }
        });
        Ok(Hold(keeper.abort_handle()))
    }
}
