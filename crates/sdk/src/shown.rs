//! Tells the own node what the program's stages do, each second, so that the monitor and `/metrics` show them under the service.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderName, Method};
use serde_json::{Map, Value};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::limits::SHOW_EVERY;
use crate::node::{Call, Failed};
use crate::{Given, Node, Stage};

/// Gives the figures of a stage, with their names.
pub(crate) type Figures = Arc<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>;

const LIFE: HeaderName = HeaderName::from_static("coppice-member");

/// For ever. Nothing depends on it: a node that does not hear it, or is too old to, shows less.
pub(crate) async fn tell(node: Node, given: Arc<Given>, stages: BTreeMap<String, Figures>) {
    let Some((life, token)) = given.life.as_deref().zip(given.token_of_service.as_deref()) else {
        return std::future::pending().await;
    };
    if stages.is_empty() {
        return std::future::pending().await;
    }
    let path = format!("/v1/services/{}/stages", given.service);
    let mut every = interval(SHOW_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_told = true;
    loop {
        every.tick().await;
        let body = Value::Object(stages.iter().map(|(name, figures)| (name.clone(), as_json(figures()))).collect());
        let Ok(mut call) = Call::new(Method::POST, path.clone(), token).body(body.to_string()).header(LIFE, life)
        else {
            return std::future::pending().await;
        };
        call.until = Some(Instant::now() + SHOW_EVERY);
        let told = match node.call(&call).await {
            Ok(answer) if answer.status.is_success() => true,
            Ok(answer) => {
                let why = String::from_utf8_lossy(&answer.body).into_owned();
                was_told.then(|| tracing::warn!(status = %answer.status, why, "the node does not show the stages"));
                false
            }
            // It is asked anew in a second.
            Err(Failed::Refused(_) | Failed::Unknown(_)) => was_told,
        };
        was_told = told;
    }
}

pub(crate) fn of_stage(stage: &Stage) -> Figures {
    let stage = stage.clone();
    Arc::new(move || {
        let shown = stage.show();
        shown.gauges().into_iter().chain(shown.totals()).collect()
    })
}

fn as_json(figures: Vec<(&'static str, u64)>) -> Value {
    Value::Object(figures.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}
