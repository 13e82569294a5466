//! What this node knows of one other node, when something is due with it, and what is to be said of it. It decides
//! nothing about life and death: that is foca's list and the machine.

use base::{Boot, NodeId, Time};
use foca::{Member, State};

use super::limits::*;
use super::links::Dialler;
use super::who::Who;
use super::{Output, Standing};

/// One other node that we know of.
pub(super) struct Peer {
    pub who: Who,
    pub state: State,
    pub incarnation: u16,
    /// What was said about it to our owner: born in this boot, and whether suspected.
    pub told: Option<(Boot, Standing)>,
    /// A link is up, to this boot of it.
    pub linked: Option<Boot>,
    /// Who it was when a link to it last came up or carried something: it may have been taken for dead and have come back
    /// without losing the link. Only of them we believe `Refused`.
    pub was_linked: Option<Who>,
    pub dial: Dialler,
    /// The link that is up, or was last, is one that this node had dialled.
    pub dialled: bool,
    /// Something came over that link, other than that it turns this node away.
    pub spoke: bool,
    pub heard: Time,
    /// A ping without an answer yet.
    pub asked: Option<Time>,
    pub asked_last: Time,
    /// There was a reason to ask again, too soon after the last time.
    pub wants_asking: bool,
    /// A ping was not answered, and nothing was heard since.
    pub quiet: bool,
    /// We made it a suspect (in that incarnation); dead at the end unless something is heard.
    pub suspicion: Option<Suspicion>,
    pub notice_at: Time,
    pub announce_at: Time,
}

pub(super) struct Suspicion {
    pub incarnation: u16,
    pub ends: Time,
}

impl Peer {
    pub fn new(who: Who, now: Time) -> Self {
        Self {
            who,
            state: State::Down,
            incarnation: 0,
            told: None,
            linked: None,
            was_linked: None,
            dial: Dialler::new(now),
            dialled: false,
            spoke: false,
            heard: Time::ZERO,
            asked: None,
            asked_last: Time::ZERO,
            wants_asking: false,
            quiet: false,
            suspicion: None,
            notice_at: Time::ZERO,
            announce_at: now,
        }
    }

    pub fn standing(&self) -> Standing {
        self.told.map_or(Standing::Dead, |(_, standing)| standing)
    }

    /// When to ask it for a sign of life.
    pub fn silence_ends(&self) -> Time {
        match self.linked {
            _ if self.wants_asking => self.asked_last + ASK_PAUSE,
            // It was asked and did not answer; this is to notice when it can again.
            Some(_) if self.quiet => self.asked_last + SILENCE.times(2),
            Some(_) => (self.heard + SILENCE).max(self.asked_last + SILENCE),
            // Dialling is the way to find out.
            None => Time::NEVER,
        }
    }

    /// Takes over what foca says of it.
    pub fn update(&mut self, member: Member<Who>, now: Time, dial_at: Time) {
        self.state = member.state();
        self.incarnation = member.incarnation();
        let who = member.id();
        if who.card.boot != self.who.card.boot {
            // A link to its former life is worth nothing.
            self.linked = self.linked.filter(|boot| *boot == who.card.boot);
            self.heard = now;
            self.quiet = false;
            self.asked = None;
            self.dial.try_at(dial_at);
        }
        if *who != self.who {
            self.who = who.clone();
        }
        let is_birth = self.state != State::Down && self.told.is_none();
        if is_birth {
            self.heard = now;
            self.quiet = false;
            self.dial.try_at(dial_at);
        }
    }

    /// Says what is new about it.
    pub fn tell(&mut self, id: NodeId, out: &mut Vec<Output>) {
        let boot = self.who.card.boot;
        let standing = match self.state {
            State::Alive => Standing::Live,
            State::Suspect => Standing::Suspect,
            State::Down => Standing::Dead,
        };
        if let Some((told, _)) = self.told
            && (told != boot || standing == Standing::Dead)
        {
            self.told = None;
            out.push(Output::Death { id, boot: told });
        }
        if standing == Standing::Dead {
            return;
        }
        let before = match self.told {
            Some((_, before)) => before,
            None => {
                out.push(Output::Birth { card: Box::new((*self.who.card).clone()) });
                Standing::Live
            }
        };
        match (before, standing) {
            (Standing::Live, Standing::Suspect) => out.push(Output::Suspect { id }),
            (Standing::Suspect, Standing::Live) => out.push(Output::Trust { id }),
            _ => (),
        }
        self.told = Some((boot, standing));
    }

    /// When it wants something done.
    pub fn next(&self) -> Time {
        let is_live = self.told.is_some();
        let is_linked = self.linked.is_some();
        let asked = self.asked.map(|asked| asked + ANSWER);
        let silence = (is_live && self.asked.is_none()).then(|| self.silence_ends());
        let suspicion = self.suspicion.as_ref().map(|s| s.ends);
        let notice = (is_live && is_linked && self.state == State::Suspect).then_some(self.notice_at);
        let dial = (!is_linked || self.quiet).then(|| self.dial.wake());
        let announce = (is_linked && !is_live).then_some(self.announce_at);
        let all = [asked.filter(|_| is_live), silence, suspicion, notice, dial, announce];
        all.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }
}
