//! The same figures for Prometheus, by its conventions: times in seconds, sizes in bytes, parts of one as ratios, distributions as
//! histograms; what is counted since the start ends in `_total`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use class::Kind;
use flow::histogram::Powers;
use flow::stage::Shown;
use node::View;
use node::view::{CloneState, NodeState, QueueView, RunsView, StubView, UsedView};

use super::{Api, Sight, clone_metrics as clones};
use crate::Meter;
use crate::answers::CODES;
use crate::clone_stages::Work;
use crate::meter::{CacheCounts, CacheMeter, PipeCounts, Pipes};
use crate::part::PartFigures;
use crate::turnstile::{Front, Turnstiles};

pub async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    let view = api.view();
    let mut text = text(&Sight::of(&headers, &view).view(&view), &api.meter.totals(), api.meter.stages());
    text += &partitions(&api.meter.turnstiles);
    text += &caches(&api.meter.caches);
    text += &pipes(&api.meter.pipes);
    text += &clone_stages(&api.meter.clones.all(Instant::now()));
    text += &works(&api.meter.clones.works(Instant::now()));
    text += &clones::here(&api.view(), &api.meter.demands);
    text += &doors(&api.meter);
    text += &process();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// `totals`: what the front doors have counted, by name.
fn text(view: &View, totals: &BTreeMap<String, u64>, mut of_doors: BTreeMap<String, Shown>) -> String {
    let mut out = Text::default();
    out.family("coppice_info", "gauge", "Version and names, in the labels.");
    let me = view.nodes.iter().find(|node| node.name == view.me);
    let version = me.map_or("", |node| &*node.version);
    out.sample("coppice_info", &[("cluster", &view.cluster), ("node", &view.me), ("version", version)], 1);

    if let Some(me) = me {
        out.single("coppice_load_ratio", "gauge", "Load of this node: 0 idle, 1 full.", f64::from(me.load) / 1e3);
        for (name, value) in me.gauges.iter().filter(|(name, _)| !name.starts_with("stage.")) {
            if let Some((metric, value)) = gauge(name, *value) {
                out.single(&metric, "gauge", gauge_help(name), value);
            }
        }
    }
    of_doors.extend(view.stages.iter().map(|(name, shown)| ((*name).to_owned(), *shown)));
    stages(&of_doors, &mut out);
    for (name, value) in totals {
        out.single(&format!("coppice_{}", plain(name)), "counter", door_help(name), *value);
    }
    for (name, value) in &view.figures {
        // Whoever counts it says what it is.
        let Some(figure) = node::figure(name) else { continue };
        let metric = format!("coppice_{}", plain(name));
        match figure.kind {
            Kind::Gauge => out.single(&metric, "gauge", figure.about, *value),
            Kind::Counter => out.single(&format!("{metric}_total"), "counter", figure.about, *value),
        }
    }

    stubs(view, &mut out);
    out.family("coppice_node_state", "gauge", "1 for the state a node is in, as this node sees it.");
    for node in &view.nodes {
        for (state, word) in [(NodeState::Live, "live"), (NodeState::Suspect, "suspect"), (NodeState::Dead, "dead")] {
            let value = u64::from(node.state == state);
            out.sample("coppice_node_state", &[("node", &node.name), ("state", word)], value);
        }
    }
    out.family("coppice_clones_wanted", "gauge", "Clones that a service should have.");
    for service in &view.services {
        out.sample("coppice_clones_wanted", &[("service", &service.name)], service.wanted);
    }
    out.family("coppice_clones", "gauge", "Clones of a service, by state.");
    let states = [
        (CloneState::Starting, "starting"),
        (CloneState::Serving, "serving"),
        (CloneState::Draining, "draining"),
        (CloneState::Backoff, "backoff"),
    ];
    for service in &view.services {
        for (state, word) in states {
            let count = service.clones.iter().filter(|clone| clone.state == state).count();
            out.sample("coppice_clones", &[("service", &service.name), ("state", word)], count as u64);
        }
    }
    out.family("coppice_clone_restarts", "gauge", "How often the present clones of a service were started again.");
    for service in &view.services {
        let restarts: u64 = service.clones.iter().map(|clone| u64::from(clone.restarts)).sum();
        out.sample("coppice_clone_restarts", &[("service", &service.name)], restarts);
    }
    runs(view, &mut out);
    clones::asked(view, &mut out);
    namespaces(view, &mut out);
    queues(view, &mut out);
    out.family(
        "coppice_certificate_ends_seconds",
        "gauge",
        "When a certificate of the cluster ends, seconds since 1970; 14 and 3 days before an event says it, too.",
    );
    for certificate in view.certificates.iter().filter(|of| of.is_there()) {
        out.sample("coppice_certificate_ends_seconds", &[("name", &certificate.name)], certificate.ends_at_ms / 1000);
    }
    out.single("coppice_declaration_version", "gauge", "Version of what is declared.", view.root.version);
    let led = u64::from(view.root.leader.is_some());
    out.single("coppice_root_has_leader", "gauge", "1 if the root group has a leader: then changes are possible.", led);
    out.0
}

/// What services run at times. Moments are in whole seconds.
fn runs(view: &View, out: &mut Text) {
    type Figure = (&'static str, &'static str, fn(&RunsView) -> Option<u64>);
    let figures: [Figure; 4] = [
        ("coppice_run_under_way", "1 while a run of the service is under way.", |runs| {
            Some(u64::from(runs.job.node.is_some()))
        }),
        ("coppice_run_good", "1 if the service's last run ended well, 0 if it failed.", |runs| {
            Some(u64::from(runs.job.last.as_ref()?.good))
        }),
        ("coppice_run_ended_seconds", "When the service's last run ended, seconds since 1970.", |runs| {
            Some(runs.job.last.as_ref()?.ended_ms / 1000)
        }),
        ("coppice_run_next_seconds", "When the service runs next, seconds since 1970.", |runs| {
            Some(runs.next_ms? / 1000)
        }),
    ];
    for (name, help, figure) in figures {
        out.family(name, "gauge", help);
        for service in &view.services {
            let runs = service.runs.as_ref().filter(|runs| runs.times.is_some());
            if let Some(value) = runs.and_then(figure) {
                out.sample(name, &[("service", &service.name)], value);
            }
        }
    }
}

/// What namespaces hold on all nodes, and what is declared for them.
fn namespaces(view: &View, out: &mut Text) {
    type Of = fn(&UsedView) -> Option<u64>;
    let families: [(&str, &str, Of); 5] = [
        (
            "coppice_namespace_bytes",
            "Bytes of a namespace's keys and values, and 48 for each key; copies not counted.",
            |u| Some(u.bytes),
        ),
        ("coppice_namespace_bytes_max", "What a namespace may hold of them, if that is declared.", |u| u.bytes_max),
        ("coppice_namespace_fullest_percent", "Part of its bounds that a namespace has where it is fullest.", |u| {
            (u.bytes_max.is_some() || u.keys_max.is_some()).then_some(u.percent.into())
        }),
        ("coppice_namespace_keys", "A namespace's keys; copies not counted.", |u| Some(u.keys)),
        ("coppice_namespace_keys_max", "Keys that a namespace may hold, if that is declared.", |u| {
            u.keys_max.map(u64::from)
        }),
    ];
    for (name, help, of) in families {
        out.family(name, "gauge", help);
        for namespace in &view.namespaces {
            if let Some(value) = namespace.used.as_ref().and_then(of) {
                out.sample(name, &[("namespace", &namespace.name)], value);
            }
        }
    }
}

/// Queues of jobs: who has no token sees a hash of each one's name.
fn queues(view: &View, out: &mut Text) {
    let all = || view.namespaces.iter().flat_map(|of| of.queues.iter().map(move |queue| (of, queue)));
    type Of = fn(&QueueView) -> u64;
    let states: [(&str, Of); 4] =
        [("waiting", |q| q.waiting), ("later", |q| q.later), ("held", |q| q.held), ("dead", |q| q.dead)];
    out.family(
        "coppice_queue_jobs",
        "gauge",
        "Jobs of a queue that wait, that come later, that workers have, that are dead.",
    );
    for (namespace, queue) in all() {
        for (state, of) in states {
            let labels = [("namespace", &*namespace.name), ("queue", &*queue.name), ("state", state)];
            out.sample("coppice_queue_jobs", &labels, of(queue));
        }
    }
    out.family("coppice_queue_oldest_seconds", "gauge", "How long the job of a queue waits that has waited longest.");
    for (namespace, queue) in all() {
        let labels = [("namespace", &*namespace.name), ("queue", &*queue.name)];
        out.sample("coppice_queue_oldest_seconds", &labels, queue.oldest_ms as f64 / 1e3);
    }
}

/// How Prometheus is told a gauge of a node; none: histograms say it.
fn gauge(name: &str, value: u64) -> Option<(String, f64)> {
    let value = value as f64;
    Some(match name {
        "disk.unforced_ms_max" => ("coppice_disk_unforced_seconds_max".to_owned(), value / 1e3),
        "machine.busy" => ("coppice_machine_busy_ratio".to_owned(), value / 1e3),
        node::CERTIFICATE_ENDS => ("coppice_node_certificate_ends_seconds".to_owned(), value),
        node::FILES_END => ("coppice_certificate_files_end_seconds".to_owned(), value),
        name if name.ends_with("_us") => return None,
        name => (format!("coppice_{}", plain(name)), value),
    })
}

/// Most gauges are of doors; a few are of the machine below them.
fn gauge_help(name: &str) -> &'static str {
    match name {
        "disk.unforced_ms_max" => {
            "Longest time from a write of durability \"memory\" to the end of its force since the node started."
        }
        "disk.free_bytes" => "Bytes that are free on the disk of this node's folder.",
        "disk.size_bytes" => "Bytes that the disk of this node's folder has.",
        "certificate.ends_at_s" => {
            "When this node's certificate ends, seconds since 1970. It is renewed when a third of its time is left."
        }
        "certificate.renewals_failed" => {
            "Times that this node's certificate could not be renewed since it should have been."
        }
        "authority.turn" => {
            "Turns towards another authority of the cluster (`coppice ca rotate`, three for each) that this node has followed."
        }
        "certificate.files_end_at_s" => {
            "When the first of the certificates that this node has from files ends, seconds since 1970."
        }
        "certificate.files_wrong" => {
            "Pairs of files with certificates that are not taken; an event says why, and they go on as they were."
        }
        "kernel.landlock" => {
            "Version of the kernel's Landlock, by which clones are kept from files; 0 if it has none, 6 is enough."
        }
        "kernel.groups" => {
            "1 if this node holds clones to `limits` of memory and processes by control groups, 0 if process by process."
        }
        "machine.busy" => "How busy the machine of this node was in the last second: 1 is full.",
        "net.links" => "Connections between this node and others, at this moment.",
        "net.frames_in" => "Frames that came from other nodes in the last second.",
        "net.frames_out" => "Frames that went to other nodes in the last second.",
        "net.frames_dropped" => {
            "Frames to other nodes that were dropped in the last second: their links could not take them."
        }
        _ => door_help(name),
    }
}

/// What the doors of this node count. Units of work are requests at the HTTP door, commands at the Redis door, streams (connections
/// of TCP services) at the TCP door.
fn door_help(name: &str) -> &'static str {
    match name {
        "http.requests" => "HTTP requests a second at this node's door, over the last second.",
        "http.requests_total" => "HTTP requests that were answered at this node's door.",
        "http.clones_left_alone_total" => {
            "Times that a clone was left alone for a while, as it failed several requests in a row."
        }
        "http.profiles_kept_total" => "Requests that went with a copy of the profile that this node keeps.",
        "http.profiles_read_total" => "Profiles that were read for requests, as this node had no copy.",
        "http.profiles_old_total" => {
            "Requests that went with the profile that this node had seen last, as it could not be read."
        }
        "http.profiles_unknown_total" => {
            "Requests without a profile, as it could not be read and this node had seen none."
        }
        "http.sessions_read_total" => "Sessions that the edge read for requests.",
        "http.sessions_stored_total" => "Sessions that the edge stored after requests.",
        "http.sessions_touched_total" => "Sessions whose lease the edge began anew without storing them.",
        "http.sessions_ended_total" => "Sessions that the edge ended, as a program asked for.",
        "http.sessions_failed_total" => "Sessions that the edge could not read or store.",
        "resp.commands" => "Commands a second of Redis clients, over the last second.",
        crate::meter::SCRIPTS_WITHHELD => {
            "Scripts that are withheld at this node, as it ended twice while they ran (`SCRIPT WITHHELD`)."
        }
        "resp.commands_total" => "Commands of Redis clients that were answered.",
        "resp.unread_bytes" => "Answers to Redis clients that they have not read yet, bytes, at this moment.",
        "resp.unread_closed_total" => "Redis clients whose connection was closed, as they did not read their answers.",
        "resp.subscribers_bytes" => {
            "Messages to Redis clients that listen to channels and have not read them yet, bytes, at this moment."
        }
        "resp.subscribers_closed_total" => {
            "Redis clients whose connection was closed, as they did not read messages of channels."
        }
        "resp.subscriptions_refused_total" => {
            "Subscriptions of Redis clients that were refused: too many channels, or too long names."
        }
        "tcp.streams" => "Connections of TCP services that ended, a second, over the last second.",
        "tcp.streams_total" => "Connections of TCP services that ended.",
        "functions.calls_total" => "Functions of services for linear keys that were called at this node.",
        "functions.rounds_total" => "Requests to clones that these calls took.",
        "functions.conflicts_total" => "Rounds whose write was refused, as the key had changed meanwhile: done again.",
        _ => match name.split_once('.').map(|(_, what)| what) {
            Some("errors") => "Of that door's work, what failed on our side, a second, over the last second.",
            Some("errors_total") => "Of that door's work, what failed on our side.",
            Some("connections") => "Open connections of clients at that door, at this moment.",
            Some("connections_over_share_total") => {
                "Connections refused at that door, as their address had its share already."
            }
            _ => UNKNOWN,
        },
    }
}

/// A figure without a sentence: the page of all figures has none, which a test looks for.
const UNKNOWN: &str = "Of this node.";

/// Stages, by name: what waits, what is under way, what may be, how long.
fn stages(all: &BTreeMap<String, Shown>, out: &mut Text) {
    let mut families: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for (name, shown) in all {
        for (figure, value) in shown.gauges().into_iter().chain(shown.totals()).filter(|(name, _)| !is_quantile(name)) {
            families.entry(figure).or_default().push((name, value));
        }
    }
    for (figure, samples) in families {
        let name = format!("coppice_stage_{figure}");
        let kind = if figure.ends_with("_total") { "counter" } else { "gauge" };
        out.family(&name, kind, stage_help(figure));
        for (stage, value) in samples {
            out.sample(&name, &[("stage", stage)], value);
        }
    }
    type Times = fn(&Shown) -> &Powers;
    let families: [(&str, &str, Times); 2] = [
        ("coppice_stage_wait_seconds", "How long a stage's work waited, since the start.", |shown| &shown.waits),
        ("coppice_stage_service_seconds", "How long a stage's work took then.", |shown| &shown.services),
    ];
    for (family, help, times) in families {
        out.family(family, "histogram", help);
        for (stage, shown) in all {
            out.histogram(family, &[("stage", stage)], times(shown).below(), times(shown).sum_us());
        }
    }
}

/// Stages of programs on this node (`sdk::Stage`), as these tell them.
fn clone_stages(all: &[(String, String, Shown)]) -> String {
    let mut out = Text::default();
    let mut families: BTreeMap<&str, Vec<([&str; 3], u64)>> = BTreeMap::new();
    for (clone, stage, shown) in all {
        let service = clone.split_once('/').map_or(&**clone, |(service, _)| service);
        for (figure, value) in shown.gauges().into_iter().chain(shown.totals()).filter(|(name, _)| !is_quantile(name)) {
            families.entry(figure).or_default().push(([service, clone, stage], value));
        }
    }
    for (figure, samples) in families {
        let name = format!("coppice_clone_stage_{figure}");
        let kind = if figure.ends_with("_total") { "counter" } else { "gauge" };
        out.family(&name, kind, &format!("{} As a clone on this node tells it.", stage_help(figure)));
        for ([service, clone, stage], value) in samples {
            out.sample(&name, &[("service", service), ("clone", clone), ("stage", stage)], value);
        }
    }
    // Clones tell no more of it than this.
    type Quantiles = fn(&Shown) -> [(&'static str, u64); 2];
    let families: [(&str, &str, Quantiles); 2] = [
        (
            "coppice_clone_stage_wait_seconds",
            "How long a stage's work waited in the last second, as a clone tells it.",
            |s| [("0.5", s.wait_p50_us), ("0.99", s.wait_p99_us)],
        ),
        ("coppice_clone_stage_service_seconds", "How long a stage's work took then, as a clone tells it.", |s| {
            [("0.5", s.service_p50_us), ("0.99", s.service_p99_us)]
        }),
    ];
    for (family, help, of) in families {
        out.family(family, "summary", help);
        for (clone, stage, shown) in all {
            let service = clone.split_once('/').map_or(&**clone, |(service, _)| service);
            for (quantile, us) in of(shown) {
                let labels = [("service", service), ("clone", clone), ("stage", stage), ("quantile", quantile)];
                out.sample(family, &labels, us as f64 / 1e6);
            }
        }
    }
    out.0
}

fn is_quantile(figure: &str) -> bool {
    figure.ends_with("_us")
}

fn stage_help(figure: &str) -> &'static str {
    match figure {
        "waiting" => "Work that waits before a stage (docs/guide/overload.md), at this moment.",
        "under_way" => "Work that a stage has under way, at this moment.",
        "limit" => "Work that a stage lets be under way at once, at this moment.",
        "overloaded" => "1 while a stage has more to do than it can.",
        "started_total" => "Work that a stage has begun.",
        "refused_total" => "Work that a stage has refused, as there was too much.",
        "overloads_total" => "Times that a stage became overloaded.",
        _ => UNKNOWN,
    }
}

/// What requests, commands and connections took, since the start.
fn doors(meter: &Meter) -> String {
    let mut out = Text::default();
    let name = "coppice_http_request_duration_seconds";
    out.family(name, "histogram", "From a request's coming to the head of its answer, by service and status.");
    for (service, codes) in meter.http.answers.all() {
        for (code, times) in CODES.iter().zip(codes.iter()) {
            let counts: Vec<_> = times.within().collect();
            if counts.last().is_some_and(|(_, count)| *count > 0) {
                let labels = [("service", &*service), ("code", *code)];
                out.histogram(name, &labels, counts.into_iter(), times.sum_us());
            }
        }
    }
    let name = "coppice_door_duration_seconds";
    let help = "What work of a door took: requests (http), commands of Redis clients (resp), connections (tcp) until the first byte.";
    out.family(name, "histogram", help);
    for (door, of) in [("http", &meter.http), ("resp", &meter.resp), ("tcp", &meter.tcp)] {
        let took = of.took();
        out.histogram(name, &[("door", door)], took.below(), took.sum_us());
    }
    out.0
}

fn process() -> String {
    let mut out = Text::default();
    for (name, kind, help, value) in super::process::figures() {
        out.single(name, kind, help, value);
    }
    out.0
}

/// Workers on this node, as their stubs tell it.
fn works(all: &[(String, Work)]) -> String {
    let mut out = Text::default();
    type Figure = fn(&Work) -> u64;
    let families: [(&str, &str, &str, Figure); 3] = [
        (
            "coppice_clone_crashes_total",
            "counter",
            "Jobs of a worker on this node that took a process with them.",
            |w| w.crashes,
        ),
        (
            "coppice_clone_withheld",
            "gauge",
            "Inputs that are withheld from it now, as they crashed workers twice.",
            |w| w.withheld,
        ),
        (
            "coppice_clone_withheld_jobs_total",
            "counter",
            "Jobs that were not begun, as their input is withheld.",
            |w| w.withheld_jobs,
        ),
    ];
    for (family, kind, help, figure) in families {
        out.family(family, kind, help);
        for (clone, work) in all {
            let service = clone.split_once('/').map_or(&**clone, |(service, _)| service);
            out.sample(family, &[("service", service), ("clone", clone)], figure(work));
        }
    }
    out.0
}

/// What each partition's requests and connections met at this node's doors. Those that nobody has asked are left out.
fn partitions(turnstiles: &Turnstiles) -> String {
    let mut out = Text::default();
    let each: Vec<PartFigures> = turnstiles.figures().collect();
    type Figure = fn(&PartFigures) -> u64;
    let families: [(&str, &str, &str, Figure); 6] = [
        ("coppice_partition_requests_total", "counter", "Requests of a partition.", |p| p.requests),
        (
            "coppice_partition_refused_total",
            "counter",
            "Of them, refused: for lack of room, or as it is out of use.",
            |p| p.refused,
        ),
        (
            "coppice_partition_asked_more_total",
            "counter",
            "Clones that were asked for a request besides the first (`ask`).",
            |p| p.asked_more,
        ),
        (
            "coppice_partition_won_by_other_total",
            "counter",
            "Requests whose answer came from another clone than the first that was asked.",
            |p| p.won_by_other,
        ),
        (
            "coppice_partition_cancelled_total",
            "counter",
            "Clones that were asked for a request and broken off, as another had answered.",
            |p| p.cancelled,
        ),
        (
            "coppice_partition_withheld_total",
            "counter",
            "Clones that were not asked besides the first: too much to do, or 1 in 20 had been (`ask_late`).",
            |p| p.withheld,
        ),
    ];
    let labels = |part: &'_ PartFigures| {
        let door = if part.door == Front::Tcp { "tcp" } else { "http" };
        [("service", part.service.clone()), ("partition", part.partition.clone()), ("door", door.to_owned())]
    };
    for (family, kind, help, figure) in families {
        out.family(family, kind, help);
        for part in &each {
            let labels = labels(part);
            out.sample(family, &labels.each_ref().map(|(key, text)| (*key, &**text)), figure(part));
        }
    }
    let family = "coppice_partition_duration_seconds";
    let help =
        "From a request's coming to the head of its answer, by partition; of a connection, to the clone's first byte.";
    out.family(family, "histogram", help);
    for part in &each {
        let labels = labels(part);
        let labels = labels.each_ref().map(|(key, text)| (*key, &**text));
        out.histogram(family, &labels, part.took.below(), part.took.sum_us());
    }
    out.0
}

/// What pipelines did at this node's door.
fn pipes(meter: &Pipes) -> String {
    let mut out = Text::default();
    let all = meter.all();
    type Figure = fn(&PipeCounts) -> &AtomicU64;
    let families: [(&str, &str, Figure); 7] = [
        ("exact", "Answers that a pipeline made as it is to.", |c| &c.exact),
        ("near", "Answers that went out as the pipeline made them of an earlier content, as a step failed.", |c| {
            &c.near
        }),
        ("partial", "Answers that a pipeline made without some of their parts.", |c| &c.partial),
        ("original", "Answers that went out as the service gave them: not for it, or a step failed.", |c| &c.original),
        ("failed", "Answers instead of which 502 went out, as a step failed.", |c| &c.failed),
        ("jobs", "Jobs that its workers were asked for.", |c| &c.jobs),
        ("hits", "Jobs that had been done before: the result was in its cache.", |c| &c.hits),
    ];
    for (what, help, figure) in families {
        let family = format!("coppice_pipeline_{what}_total");
        out.family(&family, "counter", help);
        for (pipeline, counts) in &all {
            out.sample(&family, &[("pipeline", pipeline)], figure(counts).load(Relaxed));
        }
    }
    out.0
}

/// What edge caches did at this node's door.
fn caches(meter: &CacheMeter) -> String {
    let mut out = Text::default();
    let all = meter.all();
    type Figure = fn(&CacheCounts) -> &AtomicU64;
    let families: [(&str, &str, Figure); 6] = [
        ("hits", "Requests that the edge cache of a service answered without a clone.", |c| &c.hits),
        ("misses", "Requests that it gave to a clone, as nothing was there or it had to be asked for anew.", |c| {
            &c.misses
        }),
        ("passed", "Requests that it did not look for, as they are not for a cache.", |c| &c.passed),
        ("stale", "Requests that it answered with what was not fresh any more.", |c| &c.stale),
        ("stored", "Answers that it stored.", |c| &c.stored),
        ("stored_bytes", "Bytes of the answers that it stored.", |c| &c.stored_bytes),
    ];
    for (figure, help, of) in families {
        let name = format!("coppice_edge_cache_{figure}_total");
        out.family(&name, "counter", help);
        for (service, counts) in &all {
            out.sample(&name, &[("service", service)], of(counts).load(Relaxed));
        }
    }
    out.0
}

/// This node's stub towards each brick.
fn stubs(view: &View, out: &mut Text) {
    type Figure = fn(&StubView) -> u64;
    let families: [(&str, &str, &str, Figure); 6] = [
        ("coppice_stub_window", "gauge", "Requests that this node may have under way to a brick.", |s| s.window),
        ("coppice_stub_in_flight", "gauge", "Requests of this node under way to a brick.", |s| s.in_flight),
        ("coppice_stub_timeouts_total", "counter", "Requests of this node that a brick did not answer in time.", |s| {
            s.timeouts
        }),
        (
            "coppice_stub_no_room_total",
            "counter",
            "Requests of this node that were not sent to a brick as its window was full.",
            |s| s.no_room,
        ),
        (
            "coppice_stub_turned_away_total",
            "counter",
            "Requests of this node that were not sent to a brick as it had said that it turns away such a priority.",
            |s| s.turned_away,
        ),
        (
            "coppice_stub_full_total",
            "counter",
            "Writes of this node that a brick refused as its memory is full.",
            |s| s.full,
        ),
    ];
    for (name, kind, help, figure) in families {
        out.family(name, kind, help);
        for stub in &view.stubs {
            out.sample(name, &[("brick", &stub.brick)], figure(stub));
        }
    }
}

/// A figure's name as Prometheus allows it.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Default)]
pub(super) struct Text(pub(super) String);

impl Text {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes everything");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(key, text)| format!("{key}=\"{}\"", quoted(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "{name}{labels} {value}").expect("a string takes everything");
    }

    /// `counts`: how many took so many microseconds at most (none: any time), the shortest first.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        counts: impl Iterator<Item = (Option<u64>, u64)>,
        sum_us: u64,
    ) {
        let (mut all, bucket) = (0, format!("{name}_bucket"));
        for (top_us, count) in counts {
            let le = top_us.map_or_else(|| "+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
            self.sample(&bucket, &[labels, &[("le", &le)]].concat(), count);
            all = count;
        }
        self.sample(&format!("{name}_sum"), labels, sum_us as f64 / 1e6);
        self.sample(&format!("{name}_count"), labels, all);
    }

    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use node::view::NodeView;

    use super::*;

    /// Above the table of the page.
    const HEAD: &str = "\
# Figures

What `GET /metrics` of a node's API says, in the text format of Prometheus. This page is printed from the program by a test (`just docs`).

- A counter counts since the node started, and its name ends in `_total`. A gauge is what is now, or was in the last second.
- A histogram has `_bucket` (with `le`), `_sum` and `_count`, and counts since the node started. Times are in seconds, sizes in bytes, ratios from 0 to 1.
- Those with labels have a value for each of what the labels name: `node`, `service`, `code`, `door`, `clone`, `partition`, `stage`, `brick`, `namespace`, `queue`.
- `packaging/prometheus/` has a dashboard for Grafana and rules for alerts: [maintenance](guide/maintenance.md#prometheus).
- Classes and doors are told by the second word of a name: `session`, `linear`, `cache`, `soft`, `object`, `http`, `resp`, `tcp`.
- What a new figure needs: [recipe](recipes/metric.md).

| figure | kind | what it is |
| --- | --- | --- |
";

    fn families() -> BTreeSet<(String, String, String)> {
        let meter = Meter::new();
        let mut gauges = meter.gauges();
        for name in [
            "net.frames_in",
            "net.frames_out",
            "net.frames_dropped",
            "net.links",
            "machine.busy",
            node::CERTIFICATE_ENDS,
            node::FILES_END,
            node::FILES_WRONG,
            node::CERTIFICATE_FAILED,
            node::authority::AUTHORITY_TURN,
            node::LANDLOCK,
            node::CONTROL_GROUPS,
            crate::meter::SCRIPTS_WITHHELD,
        ] {
            gauges.insert(name.into(), 0);
        }
        gauges.insert("disk.unforced_ms_max".into(), 0);
        gauges.insert("disk.free_bytes".into(), 0);
        gauges.insert("disk.size_bytes".into(), 0);
        let me = NodeView { gauges: Arc::new(gauges), ..crate::api::tests::node("n1") };
        let figures = node::figures().map(|figure| (figure.name.into(), 0)).collect();
        let view = View { me: "n1".into(), nodes: vec![me], figures, ..View::default() };
        let stages = [("http".to_owned(), Shown::default())].into();
        let mut all = text(&view, &meter.totals(), stages) + &partitions(&meter.turnstiles);
        meter.caches.of("shop");
        all += &caches(&meter.caches);
        meter.pipes.of("page");
        all += &pipes(&meter.pipes);
        all += &clone_stages(&[("shop/0".into(), "work".into(), Shown::default())]);
        all += &works(&[("shout/0".into(), Work::default())]);
        let demands = crate::demand::Demands::default();
        let _clone = demands.clone_count("shop/0", 0, ([127, 0, 0, 1], 1).into());
        all += &clones::here(&view, &demands);
        all += &doors(&meter);
        all += &process();
        let kinds: BTreeMap<&str, &str> =
            all.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        let helps = all.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        helps.map(|(name, help)| (name.to_owned(), kinds[name].to_owned(), help.to_owned())).collect()
    }

    #[test]
    fn the_page_of_figures_in_the_docs_is_what_the_program_says() {
        let all = families();
        assert!(all.len() > 100, "{}", all.len());
        for (name, _, help) in &all {
            assert!(help != UNKNOWN && help.ends_with('.'), "{name} has no sentence: {help}");
            // What promtool complains of.
            let is_unit = |word: &str| ["s", "ms", "us", "ns", "sec", "kb", "kib", "mb", "mib", "b"].contains(&word);
            assert!(!name.split('_').any(is_unit), "{name} has an abbreviated unit");
        }
        let row = |(name, kind, help): &(String, String, String)| format!("| `{name}` | {kind} | {help} |\n");
        let right = HEAD.to_owned() + &all.iter().map(row).collect::<String>();
        crate::pages::is_kept("metrics.md", &right);
    }
}
