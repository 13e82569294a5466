//! A brick loses 70 % of all packets that it sends (SSM figure 12, there for 10 s until it was killed): users at the other
//! nodes go on, data is there at all times, and when the network is well again so is the brick. Runs in a network of its
//! own (`unshare --net`), where `nft` drops the packets.

use super::onebrick::{Trial, VICTIM, report as common};
use crate::Plan;
use crate::faults::{Loss, enter_network};
use crate::report::{Figure, Report};

const PERCENT: u8 = 70;
const BACK_WITHIN: f64 = 60.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    enter_network()?;
    let mut report = Report::new("figure12");
    let trial = Trial::start()?;
    let third = plan.seconds as f64 * 2.0;
    let doors: Vec<_> = ["http", "resp", "api"].iter().map(|door| trial.cluster.doors(door)[VICTIM]).collect();
    let pid = i64::from(trial.pid()?);
    trial.running.wait_until(third);
    let fault = trial.seconds();
    let loss = Loss::of(doors[0].ip(), PERCENT, &doors.iter().map(|door| door.port()).collect::<Vec<_>>())?;
    trial.running.wait_until(fault + 2.0 * third);
    drop(loss);
    let mended = trial.seconds();
    let back = trial.wait(BACK_WITHIN, |sight| sight.is_live && sight.is_settled);
    trial.running.wait_until(trial.seconds() + third);
    let noticed = trial.when(fault, |sight| sight.at < mended && (!sight.is_live || !sight.is_settled));
    let same = trial.last().is_some_and(|sight| sight.pid == pid);
    let (seen, until) = trial.end()?;
    let mut push = |measure: &str, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, "SSM's paper", peer));
    };
    push("packets lost, of those that the brick sends", "%", f64::from(PERCENT), Some(70.0));
    push("so for", "s", mended - fault, Some(10.0));
    if let Some(noticed) = noticed {
        push("until it does not count as a live brick", "s", noticed - fault, Some(10.0));
    }
    let back = back.ok_or_else(|| format!("the brick is not whole {BACK_WITHIN} s after the network is well"))?;
    push("from the end of the loss until it is whole", "s", back - mended, Some(25.0));
    if noticed.is_none() {
        report.notes.push("the brick counted as live throughout".into());
    }
    if !same {
        report.notes.push("its node has another process than before".into());
    }
    let title = "One brick of five loses 70 % of what it sends (between the dashes)";
    common(plan, &mut report, (&seen, until), (fault, mended), &[fault, mended], title)?;
    Ok(report)
}
