//! A bit of the stack pointer of a live brick is flipped (SSM figure 10, there one of six at 14 s, back after 9 s): its node
//! ends at once, is started again, and users at the others notice nothing. Three times, each another bit: one that spoils
//! alignment, one that leads beyond the stack, one that leads to where no memory can be.

use std::time::Duration;

use super::onebrick::{Trial, VICTIM, report as common};
use crate::Plan;
use crate::faults::flip_stack_pointer;
use crate::report::{Figure, Report};

const BITS: [u32; 3] = [3, 24, 46];
/// The thread that a brick runs on.
const THREAD: &str = "coppice-core";
/// Longer than the node's restart and the filling of its brick take.
const BACK_WITHIN: f64 = 30.0;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("figure10");
    let mut trial = Trial::start()?;
    let apart = plan.seconds as f64;
    trial.running.wait_until(2.0 * apart);
    let (mut faults, mut restarted, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for bit in BITS {
        let asked = trial.seconds();
        // `gdb` reads the program first, and ends some time after it has let go of the process.
        flip_stack_pointer(trial.pid()?, THREAD, bit)?;
        trial.cluster.event("died", Duration::from_secs(20)).map_err(|e| format!("bit {bit}: {e}"))?;
        let fault = trial.seconds();
        faults.push(fault);
        trial.cluster.wait_restarted(VICTIM)?;
        restarted.push(trial.seconds() - fault);
        let pid = i64::from(trial.pid()?);
        let back = trial.wait(BACK_WITHIN, |sight| sight.is_live && sight.is_settled && sight.pid == pid);
        let back = back.ok_or_else(|| format!("bit {bit}: the brick is not whole {BACK_WITHIN} s later"))?;
        whole.push(back - fault);
        report.notes.push(format!(
            "bit {bit}: the process ended within the {:.1} s of gdb; its node served {:.2} s later, its brick was whole {:.2} s later",
            fault - asked,
            restarted.last().unwrap_or(&0.0),
            back - fault
        ));
        trial.running.wait_until(trial.seconds() + apart);
    }
    let (seen, until) = trial.end()?;
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let mut push = |measure: &str, unit: &str, value: f64, peer: Option<f64>| {
        report.figures.push(Figure::new(measure, unit, value, "SSM's paper", peer));
    };
    push("bits flipped", "faults", faults.len() as f64, None);
    push("processes that ended of it", "faults", faults.len() as f64, None);
    push("longest until its node serves again", "s", most(&restarted), Some(9.0));
    push("longest until its brick is whole", "s", most(&whole), None);
    let over = faults.last().zip(whole.last()).map_or(until, |(fault, whole)| fault + whole);
    let first = faults[0];
    let title = "A bit of the stack pointer of one brick of five flipped, three times (dashed)";
    common(plan, &mut report, (&seen, until), (first, over), &faults, title)?;
    Ok(report)
}
