//! How operations are begun, taken on, and ended: what a front door asks becomes a running operation, its legs are
//! sent and answered, and what has waited long enough is looked at again. What it does next is decided in `read`,
//! `write`, `walk` and `cookie_ops`.

use base::{AskId, NodeId, Outcome, Refused, Span, Time, Unknown};
use bytes::Bytes;

use super::brick::{Want, Write, Wrote};
use super::doc::kind_of_old;
use super::limits::{
    AHEAD_NOTED_EVERY, BUDGET_MAX, KINDS_SINCE, LEASE_MS_MAX, OPEN_MAX, ROUNDS_MAX, STAMP_COARSE_MS, STOOD_NOTED_MS,
    YOUNG, YOUNG_RESTS,
};
use super::map::place;
use super::op::{Action, Op, Place, Reply};
use super::ops::{Leg, LegState, NUMBER_MASK, Phase, Running};
use super::table::{Key, Value};
use super::wire::{self, Head, What};
use super::{Call, CookieError, Kind, Output, Session};

/// Why an operation was not begun.
pub(super) enum NotBegun {
    Refused(Refused),
    BadCookie(CookieError),
}

impl From<Refused> for NotBegun {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// What has become of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Wait,
    Over,
}

impl Session {
    pub(super) fn ask(&mut self, call: &mut Call, id: AskId, budget: Span, op: Op) {
        match self.prepare(call, id, budget, op) {
            Ok(op) => self.launch(call, op),
            Err(NotBegun::Refused(refused)) => {
                self.figures.refused += 1;
                call.answer(id, Outcome::Refused(refused));
            }
            Err(NotBegun::BadCookie(error)) => {
                self.note_bad_cookie(call, error);
                call.answer(id, Outcome::Done(Reply::BadCookie(error)));
            }
        }
    }

    /// Starts an operation and runs it as far as it goes.
    pub(super) fn launch(&mut self, call: &mut Call, op: Box<Running>) {
        let number = self.ops.add();
        if op.phase == Phase::Rest {
            self.ops.time_at((call.now + YOUNG_RESTS).min(op.deadline), number);
        }
        self.run(call, number, op);
    }

    fn prepare(&mut self, call: &mut Call, id: AskId, budget: Span, op: Op) -> Result<Box<Running>, NotBegun> {
        let Some(namespace) = self.namespaces.get(&*op.namespace) else {
            return Err(Refused::wrong(format!("there is no namespace \"{}\"", op.namespace)).into());
        };
        let walks = matches!(op.action, Action::Count | Action::Scan { .. });
        check(&op, walks)?;
        let (name, number, lease_default, timeout) = (op.namespace, namespace.id, namespace.lease, namespace.timeout);
        let merges = namespace.merges;
        let mut running = Box::new(Running::new(Key::new(number, op.key), op.action));
        running.ask = Some(id);
        running.priority = op.priority;
        running.deadline = call.now + budget.min(BUDGET_MAX);
        // Whoever gives up sooner says nothing of how fast a brick is.
        running.timeout = timeout;
        running.lease_default = lease_default;
        if let Place::Cookie(text) = op.place {
            running.namespace = Some((*name).into());
            running.by_cookie = true;
            self.open_cookie(call, &mut running, text.as_deref())?;
        }
        running.merges = merges && !running.by_cookie;
        self.check_kind(&running)?;
        if running.merges {
            self.begin_merge(call, &name, &mut running)?;
        }
        check_size(&running.action)?;
        running.phase = match &running.action {
            Action::Count | Action::Scan { .. } => Phase::Walk,
            Action::Put { lease, when, want_old, .. } => {
                let blind = *when == super::When::Always
                    && !want_old
                    && *lease != super::Lease::Keep
                    && running.merge.is_none()
                    || running.by_cookie;
                if blind { Phase::Write } else { Phase::Read }
            }
            Action::Remove if running.by_cookie => Phase::Write,
            Action::Get | Action::Touch { .. } | Action::GetTouch { .. } => Phase::Read,
            Action::Remove | Action::RemoveIf { .. } | Action::Take => Phase::Read,
        };
        if running.phase == Phase::Write {
            self.blind_write(&mut running);
        }
        match self.place(call, &mut running) {
            Err(_) if self.is_young(call.now) => running.phase = Phase::Rest,
            placed => placed?,
        }
        Ok(running)
    }

    /// Chooses the bricks.
    fn place(&mut self, call: &Call, op: &mut Running) -> Result<(), Refused> {
        if op.by_cookie { self.place_cookie(call, op) } else { self.place_keyed(call, op) }
    }

    /// A node that has just started does not know the others yet: what it is asked waits for a moment.
    pub(super) fn is_young(&self, now: Time) -> bool {
        self.born.is_some_and(|born| now.since(born) < YOUNG)
    }

    /// Too few bricks are live: soon there are more if this node has just started, otherwise that is the answer.
    pub(super) fn wait_or_give_up(&mut self, call: &mut Call, number: u64, op: &mut Running, why: &str) -> Next {
        if self.is_young(call.now) && op.ask.is_some() {
            op.round = op.round.min(ROUNDS_MAX / 2);
            return self.rest(call, number, op, YOUNG_RESTS);
        }
        self.give_up(call, op, why)
    }

    /// Takes legs and placement from the present map.
    pub(super) fn place_keyed(&self, call: &Call, op: &mut Running) -> Result<(), Refused> {
        let Some(map) = &self.map else {
            return Err(Refused::busy("this node does not know the bricks yet", Span::millis(200)));
        };
        if self.is_cut_off(call.now) {
            return Err(Refused::busy("this node is cut off from most bricks", Span::secs(1)));
        }
        op.epoch = map.epoch;
        if matches!(op.action, Action::Count | Action::Scan { .. }) {
            op.legs = map.everyone().into_iter().map(Leg::new).collect();
            return Ok(());
        }
        op.places = [Some(place(&map.members, op.key.hash)), map.old.as_ref().map(|old| place(old, op.key.hash))];
        op.legs.clear();
        for at in 0..2 {
            for node in op.places[at].iter().flat_map(|place| place.nodes().to_vec()) {
                if op.legs.iter().all(|leg| leg.node != node) {
                    op.legs.push(Leg::new(node));
                }
            }
        }
        Ok(())
    }

    /// Runs one operation as far as it goes now, and keeps it if it waits.
    fn run(&mut self, call: &mut Call, number: u64, mut op: Box<Running>) {
        match self.step(call, number, &mut op) {
            Next::Wait => self.ops.put(number, op),
            Next::Over => {
                self.let_go(&op);
                self.ops.over(number);
            }
        }
    }

    fn step(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        // What is at a brick is confirmed or taken back first, or readers would long doubt it (seed 990018).
        if op.round > ROUNDS_MAX && op.ask.is_some() && !op.is_left_open() {
            return self.give_up(call, op, "too many tries");
        }
        let places_matter = matches!(op.phase, Phase::Read | Phase::Write | Phase::Walk);
        if places_matter
            && !op.by_cookie
            && op.epoch < self.map_seen()
            && let Err(refused) = self.renew(call, op)
        {
            return self.give_up(call, op, &refused.why);
        }
        match op.phase {
            Phase::Read => self.step_read(call, number, op),
            Phase::Write => self.step_write(call, number, op),
            Phase::Finish => self.step_finish(call, number, op),
            Phase::Undo => self.step_undo(call, number, op),
            Phase::Walk => self.step_walk(call, number, op),
            Phase::Rest => Next::Wait,
        }
    }

    /// Ends an operation with its reply.
    pub(super) fn done(&mut self, call: &mut Call, op: &mut Running, mut reply: Reply) {
        let Some(id) = op.ask.take() else { return };
        if let Reply::Value { value, kind: Kind::Text, .. } = &mut reply
            && op.merges
            && op.action != Action::Take
        {
            *value = self.hand_out(op, std::mem::take(value));
        }
        match &reply {
            Reply::Value { .. } | Reply::Absent => self.figures.reads += 1,
            Reply::Lost => {
                self.figures.reads += 1;
                self.figures.lost += 1;
            }
            Reply::Stored { .. } | Reply::NotStored { .. } | Reply::Removed(_) | Reply::Touched(_) => {
                self.figures.writes += 1;
            }
            Reply::OtherKind(_) => self.figures.reads += 1,
            Reply::Count(_) | Reply::Page { .. } | Reply::BadCookie(_) => (),
        }
        call.answer(id, Outcome::Done(reply));
    }

    /// Ends an operation that cannot be done as it is asked.
    pub(super) fn refuse(&mut self, call: &mut Call, op: &mut Running, refused: Refused) -> Next {
        if op.may_have_happened {
            return self.give_up(call, op, &refused.why);
        }
        self.figures.refused += 1;
        op.ask.take().into_iter().for_each(|id| call.answer(id, Outcome::Refused(refused.clone())));
        Next::Over
    }

    /// Ends an operation that came to nothing: unknown if it may have happened, refused if not.
    pub(super) fn give_up(&mut self, call: &mut Call, op: &mut Running, why: &str) -> Next {
        self.give_up_as(call, op, Refused::busy(why, super::limits::RETRY_AFTER))
    }

    /// The same, with all that a refusal says.
    pub(super) fn give_up_as(&mut self, call: &mut Call, op: &mut Running, refused: Refused) -> Next {
        let Some(id) = op.ask.take() else { return Next::Over };
        let outcome = if op.may_have_happened {
            self.figures.unknown += 1;
            Outcome::Unknown(Unknown { why: refused.why })
        } else {
            self.figures.refused += 1;
            Outcome::Refused(refused)
        };
        call.answer(id, outcome);
        Next::Over
    }

    /// Stops for a moment, then begins anew with the present map.
    pub(super) fn rest(&mut self, call: &Call, number: u64, op: &mut Running, span: Span) -> Next {
        self.next_round(op, Phase::Rest);
        self.ops.time_at((call.now + span).min(op.deadline), number);
        Next::Wait
    }

    /// All legs anew; what was under way is not waited for.
    pub(super) fn next_round(&mut self, op: &mut Running, phase: Phase) {
        self.let_go(op);
        op.next_round(phase);
    }

    /// Begins an operation anew: its placement has changed, or it rested after losing to another writer.
    fn renew(&mut self, call: &mut Call, op: &mut Running) -> Result<(), Refused> {
        let walks = op.walk.is_some() || matches!(op.action, Action::Count | Action::Scan { .. });
        if op.by_cookie && op.write.is_none() && matches!(op.action, Action::Put { .. } | Action::Remove) {
            // It reads nothing first: the write that was given up (its clock was ahead) is made anew.
            self.blind_write(op);
        }
        let write_goes_on = op.write.is_some();
        self.let_go(op);
        self.place(call, op)?;
        op.next_round(match (walks, write_goes_on) {
            (true, _) => Phase::Walk,
            (false, true) => Phase::Write,
            (false, false) => Phase::Read,
        });
        Ok(())
    }

    /// Asks the brick of leg `at`; the own one answers at once.
    pub(super) fn send(&mut self, call: &mut Call, number: u64, op: &mut Running, at: usize, what: What, body: Bytes) {
        let (epoch, round) = (op.epoch, op.round);
        let leg = &mut op.legs[at];
        let Some(peer) = self.peers.get_mut(&leg.node).filter(|peer| peer.live) else {
            leg.state = LegState::Dead;
            return;
        };
        if !peer.is_usable(call.now, op.priority) {
            peer.not_asked();
            leg.state = LegState::NoRoom;
            return;
        }
        peer.window.sent();
        peer.counts.sent += 1;
        (leg.state, leg.sent) = (LegState::Waiting, call.now);
        leg.tries = leg.tries.saturating_add(1);
        let head = self.head(request_id(number, round), epoch, call.now, what);
        // Whoever asked may not wait as long as a brick is given. What is answered already goes on.
        let budget = if op.ask.is_some() { op.timeout.min(op.deadline.since(call.now)) } else { op.timeout };
        let frame = wire::frame(&head, body, budget.max(Span::millis(1)), op.priority);
        call.out.push(Output::Send { to: op.legs[at].node, frame });
        self.ops.time_legs(call.now, number, op, op.timeout);
    }

    pub(super) fn send_read(&mut self, call: &mut Call, number: u64, op: &mut Running, at: usize, want: Want) {
        if op.legs[at].node == self.me {
            op.legs[at].tries = op.legs[at].tries.saturating_add(1);
        } else {
            return self.send(call, number, op, at, wire::read(&op.key.clone(), want), Bytes::new());
        }
        if !self.epoch_serves(call.now, op.epoch, false) {
            op.legs[at].state = LegState::TimedOut;
            return;
        }
        let found = self.brick.read(call.now, &op.key, want);
        op.newest_seen = op.newest_seen.max(found.version);
        let leg = &mut op.legs[at];
        (leg.state, leg.found, leg.filled) = (LegState::Answered, found, self.fill.filled);
    }

    pub(super) fn send_write(&mut self, call: &mut Call, number: u64, op: &mut Running, at: usize, write: &Write) {
        if op.legs[at].node == self.me {
            op.legs[at].tries = op.legs[at].tries.saturating_add(1);
        } else {
            let (what, body) = wire::write(&op.key, write);
            return self.send(call, number, op, at, what, body);
        }
        if !self.epoch_serves(call.now, op.epoch, true) {
            op.legs[at].state = LegState::TimedOut;
            return;
        }
        let wrote = self.brick_write(call, self.me, op.epoch, &op.key, write.clone());
        let leg = &mut op.legs[at];
        (leg.state, leg.filled) = (LegState::Wrote(wrote), self.fill.filled);
    }

    pub(super) fn head(&self, id: u64, epoch: u64, now: Time, what: What) -> Head {
        let (clock_ms, stamp_ms) = (self.clock.ms(), self.stamp_ms(now));
        let floor = self.intake.floor(now).into();
        let (filled, boot, what) = (self.fill.filled, self.boot.0, Some(what));
        Head { id, epoch, clock_ms, stamp_ms, filled, boot, floor, what, ..Head::default() }
    }

    fn stamp_ms(&self, now: Time) -> u64 {
        (now.0 / 1000).saturating_add(self.stood_ms)
    }

    /// Whether a request seemed to have lain for no other reason than that this node's clock stood still, as that of a machine does
    /// which is suspended: it seemed to have lain for longer than it took until this answer. Stamps make up for it from now on.
    pub(super) fn has_stood(&mut self, call: &mut Call, waited_ms: u64, asked_ms: u64) -> bool {
        let took_ms = self.stamp_ms(call.now).saturating_sub(asked_ms) + STAMP_COARSE_MS;
        let stood_ms = waited_ms.saturating_sub(took_ms);
        if stood_ms > 0 {
            self.stood_ms = self.stood_ms.saturating_add(stood_ms);
        }
        if stood_ms >= STOOD_NOTED_MS {
            let text = format!("this machine's clock stood still for {stood_ms} ms, as on one that was suspended");
            call.warn(text);
        }
        stood_ms > 0
    }

    /// An answer to one of this node's operations.
    pub(super) fn answered(&mut self, call: &mut Call, from: NodeId, head: Head, body: Bytes) {
        let (number, round) = (head.id >> 8, (head.id & 0xff) as u8);
        let Some(mut op) = self.ops.take(number) else { return };
        if op.round == round {
            self.answered_leg(call, from, &mut op, head, body);
            if op.phase == Phase::Rest {
                let _ = self.rest(call, number, &mut op, Span::millis(10));
            }
        }
        self.run(call, number, op);
    }

    fn answered_leg(&mut self, call: &mut Call, from: NodeId, op: &mut Running, head: Head, body: Bytes) {
        let Some(leg) = op.legs.iter_mut().find(|leg| leg.node == from) else { return };
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.slow = false;
            peer.filled = head.filled;
            peer.floor.heard(call.now, head.floor);
            if leg.state == LegState::Waiting {
                let took = call.now.since(leg.sent);
                peer.answered(took);
                self.answers.note(took);
            }
        }
        // A late answer is as good as one in time; a second one is not taken.
        if !matches!(leg.state, LegState::Waiting | LegState::TimedOut) {
            return;
        }
        leg.filled = head.filled;
        match head.what {
            Some(What::Found(found)) => {
                let found = found.take(body, &op.key);
                if found.value.as_ref().is_some_and(|value| !value.is_whole()) {
                    // As if it had been lost on its way: it is asked for again.
                    self.figures.damaged_frames += 1;
                    if let Some(peer) = self.peers.get_mut(&from) {
                        peer.counts.damaged += 1;
                    }
                    return;
                }
                leg.found = found;
                leg.state = LegState::Answered;
                op.newest_seen = op.newest_seen.max(leg.found.version);
            }
            Some(What::Wrote(wrote)) => {
                if let Some(wrote) = wrote.take() {
                    if wrote == Wrote::Full
                        && let Some(peer) = self.peers.get_mut(&from)
                    {
                        peer.counts.full += 1;
                    }
                    leg.state = LegState::Wrote(wrote);
                }
            }
            Some(What::Undone(_)) => leg.state = LegState::Answered,
            Some(What::Page(page)) => {
                leg.state = LegState::Answered;
                if let Some(walk) = &mut op.walk {
                    walk.take(from, page);
                }
            }
            // By the clock of before. It is sent again at once.
            Some(What::Late(_)) => leg.state = LegState::TimedOut,
            Some(What::Behind(behind)) => {
                leg.state = LegState::TimedOut;
                if let Some(map) = super::BrickMap::decode(&behind.map) {
                    self.adopt(call, map);
                }
                if op.ask.is_some() && !op.by_cookie {
                    op.phase = Phase::Rest;
                }
            }
            Some(
                What::Read(_) | What::Write(_) | What::Undo(_) | What::Settle(_) | What::Confirm(_) | What::Resolve(_),
            )
            | Some(What::List(_) | What::Lacks(_) | What::Heard(_))
            | None => (),
        }
    }

    /// Looks at everything whose time has come.
    pub(super) fn fire(&mut self, call: &mut Call) {
        while let Some(first) = self.ops.first_legs_end() {
            let (at, number, round) = first;
            let Some(mut op) = self.ops.take(number) else {
                self.ops.pop_legs_end(first);
                continue;
            };
            if at > call.now {
                self.ops.put(number, op);
                break;
            }
            self.ops.pop_legs_end(first);
            if op.round == round {
                self.late_legs(call, &mut op);
            }
            self.run_in_time(call, number, op);
        }
        while self.ops.others.first().is_some_and(|(at, _)| *at <= call.now) {
            let (_, number) = self.ops.others.pop_first().expect("just seen");
            let Some(mut op) = self.ops.take(number) else { continue };
            if op.phase == Phase::Rest
                && op.deadline > call.now
                && let Err(refused) = self.renew(call, &mut op)
            {
                if self.is_young(call.now) {
                    self.ops.time_at((call.now + YOUNG_RESTS).min(op.deadline), number);
                    self.ops.put(number, op);
                    continue;
                }
                let _ = self.give_up(call, &mut op, &refused.why);
                self.ops.over(number);
                continue;
            }
            self.run_in_time(call, number, op);
        }
    }

    fn run_in_time(&mut self, call: &mut Call, number: u64, mut op: Box<Running>) {
        let is_late = op.deadline <= call.now;
        if is_late && (op.ask.is_some() || op.is_left_open()) {
            let was_asked = op.ask.is_some();
            let _ = self.give_up(call, &mut op, "not enough bricks answered in time");
            if was_asked && op.is_left_open() {
                // It is confirmed or taken back, or readers would long doubt it.
                op.deadline = call.now + OPEN_MAX;
                return self.run(call, number, op);
            }
            self.let_go(&op);
            self.ops.over(number);
            return;
        }
        self.run(call, number, op);
    }

    /// Answers that are still under way are not waited for any more.
    pub(super) fn let_go(&mut self, op: &Running) {
        for leg in op.legs.iter().filter(|leg| leg.state == LegState::Waiting) {
            if let Some(peer) = self.peers.get_mut(&leg.node) {
                peer.window.forgotten();
            }
        }
    }

    fn late_legs(&mut self, call: &mut Call, op: &mut Running) {
        for leg in &mut op.legs {
            if leg.state != LegState::Waiting || leg.sent + op.timeout > call.now {
                continue;
            }
            leg.state = LegState::TimedOut;
            self.figures.timeouts += 1;
            if let Some(peer) = self.peers.get_mut(&leg.node)
                && peer.timed_out(call.now, op.timeout)
            {
                call.out.push(Output::Doubt { peer: leg.node });
            }
        }
    }

    pub(super) fn ops_death(&mut self, call: &mut Call, dead: NodeId) {
        for number in self.ops.numbers() {
            let Some(mut op) = self.ops.take(number) else { continue };
            let answered = op.ask.is_none();
            for leg in op.legs.iter_mut().filter(|leg| leg.node == dead) {
                // What it had accepted is gone with its memory, or may be.
                let lost = matches!(leg.state, LegState::Wrote(Wrote::Stored { .. })) && !answered;
                let open = matches!(leg.state, LegState::Waiting | LegState::TimedOut | LegState::NoRoom);
                if lost || open {
                    leg.state = LegState::Dead;
                }
            }
            self.run(call, number, op);
        }
    }

    pub(super) fn ops_birth(&mut self, call: &mut Call, born: NodeId) {
        for number in self.ops.numbers() {
            let Some(mut op) = self.ops.take(number) else { continue };
            for leg in op.legs.iter_mut().filter(|leg| leg.node == born && leg.state == LegState::Dead) {
                leg.state = LegState::TimedOut;
            }
            self.run(call, number, op);
        }
    }

    /// Writes at the own brick, for whose map is of this epoch, and reports a writer whose clock is ahead.
    pub(super) fn brick_write(&mut self, call: &mut Call, from: NodeId, epoch: u64, key: &Key, write: Write) -> Wrote {
        if self.has_handed_on(epoch, key) {
            return Wrote::Stored { had: false };
        }
        if write.repair {
            self.wall_max = self.wall_max.max(write.version.ms);
        }
        let wrote = self.brick.write(call.now, self.wall_max, key, write);
        if let Wrote::Ahead(ms) = wrote {
            self.note_ahead(call, || {
                format!("the clock of {from} is {ms} ms ahead of this node's; its writes are refused")
            });
        }
        wrote
    }

    /// Not for each write of somebody whose clock is wrong.
    pub(super) fn note_ahead(&mut self, call: &mut Call, text: impl FnOnce() -> String) {
        if self.ahead_noted.is_none_or(|at| call.now.since(at) >= AHEAD_NOTED_EVERY) {
            self.ahead_noted = Some(call.now);
            call.warn(text());
        }
    }

    pub(super) fn sealed(value: &Bytes, kind: Kind) -> Value {
        super::brick::seal(value.clone(), kind)
    }
}

/// Tells an answer's operation and its round.
pub(super) fn request_id(number: u64, round: u8) -> u64 {
    (number & NUMBER_MASK) << 8 | u64::from(round)
}

/// What can be said without looking at any brick.
fn check(op: &Op, walks: bool) -> Result<(), Refused> {
    let key_max = base::limits::KEY_BYTES_MAX;
    if !walks && !(1..=key_max).contains(&op.key.len()) {
        return Err(Refused::wrong(format!("the key has {} bytes; 1 to {key_max} are possible", op.key.len())));
    }
    let lease = match &op.action {
        Action::Put { lease, .. } | Action::Touch { lease } | Action::GetTouch { lease } => *lease,
        Action::Get | Action::Remove | Action::RemoveIf { .. } | Action::Take => super::Lease::Default,
        Action::Count | Action::Scan { .. } => super::Lease::Default,
    };
    if lease == super::Lease::For(Span::ZERO) {
        return Err(Refused::wrong("a lease of zero: use remove"));
    }
    if let Place::Cookie(cookie) = &op.place {
        let fits = match &op.action {
            Action::Put { when, want_old, .. } => *when == super::When::Always && !want_old,
            Action::Get | Action::Touch { .. } | Action::Remove => cookie.is_some(),
            Action::GetTouch { .. } | Action::RemoveIf { .. } | Action::Take => false,
            Action::Count | Action::Scan { .. } => false,
        };
        if !fits {
            return Err(Refused::wrong("by cookie there are only put (without condition), get, touch and remove"));
        }
    }
    Ok(())
}

impl Session {
    /// A text that a program from before kinds would take for a hash is kept out until there is none.
    fn check_kind(&self, op: &Running) -> Result<(), Refused> {
        match &op.action {
            Action::Put { value, kind: Kind::Text, .. }
                if self.level < KINDS_SINCE && kind_of_old(&op.key, value) != Kind::Text =>
            {
                let why = "a value that begins as this one does is possible once all nodes run the newer program";
                Err(Refused::wrong(why))
            }
            _ => Ok(()),
        }
    }
}

/// A document's mark does not count: it is not kept.
fn check_size(action: &Action) -> Result<(), Refused> {
    let max = base::limits::SESSION_VALUE_BYTES_MAX;
    match action {
        Action::Put { value, .. } if value.len() > max => Err(Refused::wrong(format!(
            "the value has {} bytes; class session takes up to {max}, larger ones belong in class file",
            value.len()
        ))),
        _ => Ok(()),
    }
}

impl Running {
    /// How long a value written now is kept.
    pub fn lease(&self, lease: super::Lease) -> Span {
        let span = match lease {
            super::Lease::Default => self.lease_default,
            super::Lease::For(span) => span,
            super::Lease::Keep => match &self.base {
                Some(base) if base.live => base.lease_left,
                _ => self.lease_default,
            },
        };
        span.min(Span::millis(LEASE_MS_MAX))
    }
}
