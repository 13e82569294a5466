//! `coppice events`: what happened in the cluster, and what the manager decided and why. Every node keeps a list of its own;
//! here they become one, in order of time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use node::view::{EventView, NodeState, View};

use crate::client::Api;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};

/// Between two looks with `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What several nodes saw of one thing lies so close together.
const SAME_WITHIN_MS: u64 = 3_000;
/// Lines remembered with `--follow`: more than all nodes keep of the last moments.
const SHOWN_MAX: usize = 4_096;

#[derive(Clone, Debug, clap::Args)]
pub struct EventsArgs {
    /// Go on with what happens from now on, until it is ended
    #[arg(short, long)]
    pub follow: bool,
    /// Print one JSON object a line (see docs/scripts.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub node: NodeArgs,
}

pub const MORE: &str = "\
Examples:
  coppice events
  coppice events --follow
  coppice events --json | jq 'select(.kind == \"scaled\")'

Each node keeps the last 200 in memory: one that restarted begins anew, and what only it saw is gone.";

pub async fn events(args: EventsArgs) -> Result<(), String> {
    let mut shown = Shown::default();
    loop {
        match gather(&args.node.reader()?).await {
            Ok(events) => {
                for event in shown.new_ones(events) {
                    tell(&event, args.json);
                }
            }
            // The node that is asked may be about to come back.
            Err(why) if args.follow && !shown.0.is_empty() => complain!("coppice: {why}"),
            Err(why) => return Err(why),
        }
        if !args.follow {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Events of all live nodes, in order of time.
async fn gather(api: &Api) -> Result<Vec<EventView>, String> {
    let first = view(api.clone()).await?;
    let others = first.nodes.iter().filter(|n| n.state == NodeState::Live && n.name != first.me);
    let others = others.filter_map(|n| Some(Api { at: api.at.of(n, &first)?, token: api.token.clone() }));
    let others = join_all(others.map(view)).await;
    // One that does not answer now has told others what matters.
    let views = std::iter::once(first).chain(others.into_iter().flatten());
    let mut all: Vec<EventView> = views.flat_map(|view| view.events).map(Arc::unwrap_or_clone).collect();
    all.sort_by(|a, b| (a.at_ms, &a.who, &a.kind).cmp(&(b.at_ms, &b.who, &b.kind)));
    Ok(all)
}

/// What a node shows.
pub async fn view(api: Api) -> Result<View, String> {
    let json = api.get("/v1/status").await?.json()?;
    serde_json::from_value(json).map_err(|e| format!("the node's answer is of another version: {e}"))
}

fn tell(event: &EventView, json: bool) {
    if json {
        say!("{}", serde_json::to_string(event).expect("an event is plain data"));
    } else {
        say!("{}  {:<14} {:<16} {}", clock(event.at_ms), event.kind, plain(&event.who), plain(&event.text));
    }
}

/// `2026-11-22 14:03:07.123`, in UTC: nodes may be in several time zones.
pub fn clock(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (h, m, s) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{:03}", ms % 1000)
}

/// The civil date of a day since 1970 (Hinnant: days from 1 March of a 400-year era).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

/// What was printed, newest last.
#[derive(Default)]
struct Shown(VecDeque<EventView>);

impl Shown {
    /// Those of `events` that were not printed yet; what several nodes saw is one.
    fn new_ones(&mut self, events: Vec<EventView>) -> Vec<EventView> {
        let mut new = Vec::new();
        let mut twice = BTreeSet::new();
        for event in events {
            let what = (event.at_ms, event.kind.clone(), event.who.clone(), event.text.clone());
            if !twice.insert(what) || self.0.iter().any(|old| is_same(old, &event)) {
                continue;
            }
            if self.0.len() == SHOWN_MAX {
                self.0.pop_front();
            }
            self.0.push_back(event.clone());
            new.push(event);
        }
        new
    }
}

fn is_same(a: &EventView, b: &EventView) -> bool {
    a.at_ms.abs_diff(b.at_ms) <= SAME_WITHIN_MS && a.kind == b.kind && a.who == b.who && a.text == b.text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64, who: &str) -> EventView {
        EventView { at_ms, kind: "birth".into(), who: who.into(), text: "joined".into() }
    }

    #[test]
    fn what_several_nodes_saw_is_told_once_and_what_comes_again_is_told_again() {
        let mut shown = Shown::default();
        let first = shown.new_ones(vec![event(1_000, "n2"), event(1_040, "n2"), event(1_050, "n3")]);
        assert_eq!(first, [event(1_000, "n2"), event(1_050, "n3")]);
        assert_eq!(shown.new_ones(vec![event(1_000, "n2"), event(60_000, "n2")]), [event(60_000, "n2")]);
    }

    #[test]
    fn moments_are_written_as_people_write_them() {
        assert_eq!(clock(0), "1970-01-01 00:00:00.000");
        assert_eq!(clock(951_827_696_789), "2000-02-29 12:34:56.789");
        assert_eq!(clock(1_795_355_987_123), "2026-11-22 13:59:47.123");
    }
}
