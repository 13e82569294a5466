//! What a clone of this node tells of its stages, each second: shown under its service, in the monitor and the metrics.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use node::View;

use super::address::Path;
use super::declare::whole;
use super::limits::STAGES_BYTES_MAX;
use super::{Api, Problem, guard, members};
use crate::clone_stages::Figures;

/// `{"database": {"waiting": 3, ...}}`, all stages of the life that `Coppice-Member` names. It replaces what the clone said before.
pub async fn told(
    State(api): State<Api>,
    Path(service): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let view = api.view();
    guard::member(&headers, &view, &service)?;
    let life = members::life(&headers)?.unwrap_or_default();
    let Some(clone) = clone_here(&view, &service, &life) else {
        return Err(Problem::not_found(format!(
            "Coppice-Member says {life:?}, which is no clone of {service} on this node"
        )));
    };
    let body = whole(body, STAGES_BYTES_MAX).await?;
    let stages: BTreeMap<String, Figures> =
        serde_json::from_slice(&body).map_err(|e| Problem::wrong(format!("these are no figures of stages: {e}")))?;
    api.meter.clones.told(Instant::now(), clone, stages).map_err(Problem::wrong)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `shop/2`, of its life.
fn clone_here<'a>(view: &'a View, service: &str, life: &str) -> Option<&'a str> {
    let of = view.services.iter().find(|of| of.name == service)?;
    let clone = of.clones.iter().find(|clone| clone.life == life && clone.node == view.me)?;
    (!life.is_empty()).then_some(&clone.name)
}
