//! Answers to the front doors. What changes the declaration waits for the root group, with a deadline.

use base::process::Private;
use base::{AskId, Effect, GroupId, LEVEL, NodeId, Now, Outcome, Refused, Span, Time};
use bytes::Bytes;
use class::Plan;
use clones::off::Target;
use clones::{LEVEL_SECRETS, Size, group, members};
use cluster::admission::Word;
use cluster::root::{self, Change, Conflict};
use state::Class;
use state::linear::{self, place};

use crate::ask::any_class;
use crate::authority::{Authority, signs};
use crate::declared::{self, kind};
use crate::former;
use crate::limits::{ASK_AGAIN, HANDED_ON_AGAIN, OWN_CHANGE_BUDGET, PENDING_MAX, PROBE_WITHIN};
use crate::node::{Node, Out};
use crate::{
    Admitted, Answer, Applied, Ask, Leaving, authority, certificates, deploy, facts, level, renewed, secrets, services,
    tokens,
};

/// An ask that waits for the root group.
pub(crate) struct Pending {
    id: AskId,
    deadline: Time,
    /// Set while it waits for its turn: until this node has that version of the declaration, which changed under it (0:
    /// any), and those before it have ended.
    waits_for_version: Option<u64>,
    what: What,
}

pub(crate) enum What {
    Apply {
        file: String,
        text: String,
        entropy: [u8; 32],
        lines: Vec<String>,
    },
    Rotate {
        namespace: String,
        entropy: [u8; 32],
        end_sessions: bool,
        lines: Vec<String>,
    },
    RenewToken {
        wish: renewed::Renewal,
        lines: Vec<String>,
    },
    TurnAuthority {
        wish: authority::Turn,
        lines: Vec<String>,
    },
    Switch {
        target: Target,
        off: bool,
        lines: Vec<String>,
    },
    Deploy {
        wish: deploy::Wish,
        entropy: [u8; 32],
        lines: Vec<String>,
    },
    Rollback {
        service: String,
        to: Option<u32>,
        lines: Vec<String>,
    },
    Scale {
        service: String,
        size: Size,
        lines: Vec<String>,
    },
    RemoveService {
        service: String,
        lines: Vec<String>,
    },
    SetSecret {
        service: String,
        name: String,
        value: Private,
        entropy: [u8; 32],
        lines: Vec<String>,
    },
    RemoveSecret {
        service: String,
        name: String,
        lines: Vec<String>,
    },
    Certificate {
        deed: certificates::Deed,
        lines: Vec<String>,
    },
    JoinToken {
        secret_hash: [u8; 32],
        expires_wall_ms: u64,
        uses: u32,
    },
    RevokeToken {
        name: String,
    },
    /// Takes a node out of the declaration. By its id too: its name may be another one's when the change is made.
    Remove {
        name: String,
        id: NodeId,
        force: bool,
    },
    Admit {
        secret_hash: [u8; 32],
        name: String,
        level: u32,
        id: NodeId,
    },
    Renew {
        former: NodeId,
        name: String,
        why: String,
        id: NodeId,
    },
    /// The leader's own: what all nodes understand alike. Nobody waits for it.
    Level(u32),
    /// The leader's own: what it says of a version that it rolled out. Nobody waits for it.
    Verdict {
        service: String,
        text: String,
    },
    /// The leader's own: runs that begin or have ended, and what to tell of them. Nobody waits for it.
    Runs {
        told: Vec<(&'static str, String, String)>,
    },
    /// The leader's own: how long a node is away, and what to tell of it. Nobody waits for it.
    Away {
        told: Option<(String, String)>,
    },
    /// The leader's own: records that a class planned, and what to tell of them. Nobody waits for it.
    Planned {
        class: Class,
        told: Vec<(&'static str, String, String)>,
    },
}

impl What {
    /// Somebody waits for it. The leader's own looks again by itself.
    fn is_asked(&self) -> bool {
        !matches!(
            self,
            Self::Planned { .. } | Self::Level(_) | Self::Verdict { .. } | Self::Runs { .. } | Self::Away { .. }
        )
    }

    /// Whether it declares something that a cluster which agreed on this level does not understand.
    fn needs_more_than(&self, agreed: u32) -> bool {
        let text = match self {
            Self::SetSecret { .. } => return agreed < LEVEL_SECRETS,
            Self::TurnAuthority { .. } => return agreed < authority::LEVEL_ROTATE,
            Self::RenewToken { wish, .. } => return wish.is_of_service() && agreed < renewed::LEVEL_SALT,
            Self::Certificate { deed, .. } => return agreed < deed.level(),
            Self::Apply { text, .. } => Some(text),
            Self::Deploy { wish, .. } => wish.declaration.as_ref(),
            _ => None,
        };
        text.is_some_and(|text| declared::is_understood("", text, agreed).is_err())
    }
}

impl Node {
    /// Takes a question that is no operation of a class.
    pub(crate) fn ask(&mut self, now: Now, id: AskId, budget: Span, ask: Ask, out: &mut Out) {
        let what = match ask {
            // Operations of classes go to their machines (`ask_class`), and none comes here.
            state::each_class!(any_class) => return,
            Ask::Channels(op) => return self.channels_in(now, channels::Input::Ask { id, op }, out),
            Ask::Members(op) => return self.members_in(now, members::Input::Ask { id, budget, op }, out),
            Ask::Export => {
                let answer = Answer::Exported(declared::export(self.root.declared()));
                return out.push(Effect::Answer { id, answer });
            }
            // It cannot hand on anything: what it has is given up.
            Ask::Leave { name, how: Leaving::Remove, force: true } if self.is_away(&name) => {
                return self.ask(now, id, budget, Ask::Remove { name, force: true }, out);
            }
            Ask::Leave { name, how, force } => {
                let answer = Answer::Done(self.ask_leave(now, &name, how, force, out));
                return out.push(Effect::Answer { id, answer });
            }
            Ask::Remove { name, force } => match self.named(&name) {
                Ok(node) => What::Remove { name, id: node, force },
                Err(outcome) => return out.push(Effect::Answer { id, answer: Answer::Done(outcome) }),
            },
            Ask::Depart if self.live_cards().count() < 2 => {
                let alone = Outcome::Refused(Refused::wrong("nobody else is here"));
                return out.push(Effect::Answer { id, answer: Answer::Done(alone) });
            }
            Ask::Depart => What::Remove { name: self.card.name.clone(), id: self.me(), force: true },
            Ask::JoinTokens => {
                let answer = Answer::JoinTokens(tokens::live(self.root.declared(), now.wall_ms));
                return out.push(Effect::Answer { id, answer });
            }
            Ask::RevokeToken { name } => What::RevokeToken { name },
            Ask::Apply { file, text, dry_run, entropy } => {
                if dry_run {
                    let answer = Answer::Applied(self.compare(now, &file, &text, &entropy));
                    return out.push(Effect::Answer { id, answer });
                }
                What::Apply { file, text, entropy, lines: Vec::new() }
            }
            Ask::Rotate { namespace, entropy, end_sessions } => {
                What::Rotate { namespace, entropy, end_sessions, lines: Vec::new() }
            }
            Ask::Demand(demand) => {
                self.demanded(now, demand, out);
                return out.push(Effect::Answer { id, answer: Answer::Done(Outcome::Done(())) });
            }
            Ask::Doors(doors) => {
                let answer = Answer::Doors(self.tell_doors(now, &doors, out));
                return out.push(Effect::Answer { id, answer });
            }
            Ask::Codes(codes) => {
                self.group_in(now, group::Input::Codes(codes), out);
                return out.push(Effect::Answer { id, answer: Answer::Done(Outcome::Done(())) });
            }
            Ask::Deploy { wish, entropy } => What::Deploy { wish, entropy, lines: Vec::new() },
            Ask::Rollback { service, to } => What::Rollback { service, to, lines: Vec::new() },
            Ask::Scale { service, size } => What::Scale { service, size, lines: Vec::new() },
            Ask::RemoveService { service } => What::RemoveService { service, lines: Vec::new() },
            Ask::SetSecret { service, name, value, entropy } => {
                What::SetSecret { service, name, value, entropy, lines: Vec::new() }
            }
            Ask::RemoveSecret { service, name } => What::RemoveSecret { service, name, lines: Vec::new() },
            Ask::Certificate(deed) => What::Certificate { deed, lines: Vec::new() },
            Ask::Secrets { service } => {
                let outcome = match secrets::list(self.root.declared(), &service) {
                    Ok(all) => Outcome::Done(all),
                    Err(why) => Outcome::Refused(Refused::wrong(why)),
                };
                return out.push(Effect::Answer { id, answer: Answer::Secrets(outcome) });
            }
            Ask::RenewToken(wish) => What::RenewToken { wish, lines: Vec::new() },
            Ask::TurnAuthority(wish) => What::TurnAuthority { wish, lines: Vec::new() },
            Ask::Seal { key, entropy } => {
                let answer = Answer::Sealed(self.sealed(now, &key, &entropy, out));
                return out.push(Effect::Answer { id, answer });
            }
            Ask::Run(once) => {
                let answer = Answer::Run(self.run_once(now, once, out));
                return out.push(Effect::Answer { id, answer });
            }
            Ask::RunEnd { number } => {
                let answer = Answer::RunEnd(self.run_end(number));
                return out.push(Effect::Answer { id, answer });
            }
            Ask::EndRun { number } => {
                self.group_in(now, group::Input::EndOnce(number), out);
                return out.push(Effect::Answer { id, answer: Answer::Done(Outcome::Done(())) });
            }
            Ask::Switch { target, off } => What::Switch { target, off, lines: Vec::new() },
            Ask::JoinToken { secret_hash, expires_wall_ms, uses } => {
                What::JoinToken { secret_hash, expires_wall_ms, uses }
            }
            Ask::Certify => {
                let answer = Answer::Admitted(self.certify());
                return out.push(Effect::Answer { id, answer });
            }
            Ask::Certified { text } => {
                let name = self.card.name.clone();
                self.decided(now, "certificate", &name, text, out);
                return out.push(Effect::Answer { id, answer: Answer::Done(Outcome::Done(())) });
            }
            Ask::Overload { of, text } => {
                let text = format!("at {}: {text}", self.card.name);
                self.decided(now, "overload", &of, text, out);
                return out.push(Effect::Answer { id, answer: Answer::Done(Outcome::Done(())) });
            }
            Ask::Admit { secret_hash, name, level, wish } => What::Admit { secret_hash, name, level, id: wish },
            Ask::Renew { former, name, why, wish } => What::Renew { former, name, why, id: wish },
        };
        let pending = Pending { id, deadline: now.mono + budget, waits_for_version: None, what };
        if self.pending.len() >= PENDING_MAX {
            let refused = Refused::busy("too many changes are under way", ASK_AGAIN);
            return finish(pending, Outcome::Refused(refused), 0, None, out);
        }
        match pending.what {
            What::Renew { .. } => self.renew(now, pending, out),
            _ => self.queue(pending),
        }
    }

    /// What applying this would change.
    fn compare(&self, now: Now, file: &str, text: &str, entropy: &[u8; 32]) -> Outcome<Applied> {
        if self.root.declared().version == 0 {
            return Outcome::Refused(Refused::busy("this node has not heard of the declaration yet", ASK_AGAIN));
        }
        match self
            .fits_here(file, text)
            .and_then(|()| deploy::apply(self.root.declared(), file, text, now.wall_ms, entropy))
        {
            Ok(diff) => Outcome::Done(Applied { changes: diff.lines, version: self.root.declared().version }),
            Err(why) => Outcome::Refused(Refused::wrong(why)),
        }
    }

    /// Queues what is to be proposed in its turn: at the end of this event, if nothing is before it.
    fn queue(&mut self, pending: Pending) {
        self.proposals += 1;
        self.pending.insert(self.proposals, Pending { waits_for_version: Some(0), ..pending });
    }

    /// Proposes what is first in the queue. A change is compared with the whole declaration, so of several under way at
    /// once all but one would be in vain, each time anew: this node's go one after the other, and those of several
    /// nodes wait for each other as long as their callers do.
    pub(crate) fn propose_next(&mut self, now: Now, out: &mut Out) {
        loop {
            let is_under_way = |p: &Pending| p.waits_for_version.is_none() && p.what.is_asked();
            if self.pending.values().any(is_under_way) {
                return;
            }
            let first = self.pending.iter().find_map(|(id, p)| Some((*id, p.waits_for_version?)));
            let Some((id, _)) = first.filter(|(_, version)| *version <= self.root.declared().version) else { return };
            let pending = self.pending.remove(&id).expect("it was just found");
            if pending.deadline <= now.mono {
                finish(pending, Outcome::Refused(out_of_time()), 0, None, out);
                continue;
            }
            self.propose(now, id, pending, out);
        }
    }

    /// Turns an ask into a change and proposes it, or ends it.
    fn propose(&mut self, now: Now, id: u64, mut pending: Pending, out: &mut Out) {
        if self.agreed() < LEVEL.min(self.level_of_all()) && pending.what.needs_more_than(self.agreed()) {
            // All nodes have the program that it needs, and the leader is about to say so.
            pending.waits_for_version = Some(self.root.declared().version + 1);
            self.pending.insert(id, pending);
            return;
        }
        match self.change_for(now, &mut pending.what) {
            Ok(Some(change)) => {
                let budget = pending.deadline.since(now.mono);
                pending.waits_for_version = None;
                self.pending.insert(id, pending);
                self.root_in(now, root::Input::Propose { id, budget, change }, out);
            }
            Ok(None) => finish(pending, Outcome::Done(()), self.root.declared().version, None, out),
            Err(refused) => finish(pending, Outcome::Refused(refused), 0, None, out),
        }
    }

    /// An error: not all nodes have the programs that something needs.
    fn need(&self, what: &str, level: u32) -> Result<(), Refused> {
        if self.agreed().max(self.level_of_all()) >= level {
            return Ok(());
        }
        Err(Refused::wrong(format!(
            "{what} need programs of level {level} on all nodes, and this cluster agreed on level {}: upgrade them all first",
            self.agreed()
        )))
    }

    /// The change that an ask needs; none if all is so already.
    fn change_for(&self, now: Now, what: &mut What) -> Result<Option<Change>, Refused> {
        let declared = self.root.declared();
        if declared.version == 0 {
            return Err(Refused::busy("this node has not heard of the declaration yet", ASK_AGAIN));
        }
        match what {
            What::SetSecret { .. } => self.need("secrets", LEVEL_SECRETS)?,
            What::TurnAuthority { .. } => self.need("changes of the authority", authority::LEVEL_ROTATE)?,
            What::RenewToken { wish, .. } if wish.is_of_service() => {
                self.need("renewed tokens of services", renewed::LEVEL_SALT)?;
            }
            What::Certificate { deed, .. } => self.need("certificates of the cluster", deed.level())?,
            _ => (),
        }
        match what {
            What::Apply { file, text, entropy, lines } => {
                self.fits_here(file, text).map_err(Refused::wrong)?;
                let diff = deploy::apply(declared, file, text, now.wall_ms, entropy).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!diff.change.puts.is_empty() || !diff.change.removes.is_empty()).then_some(diff.change))
            }
            What::Rotate { namespace, entropy, end_sessions, lines } => {
                let diff = declared::rotate(declared, namespace, entropy, now.wall_ms, *end_sessions);
                let diff = diff.map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok(Some(diff.change))
            }
            What::TurnAuthority { wish, lines } => self.turn_authority(wish, lines),
            What::RenewToken { wish, lines } => {
                let diff = renewed::renew(declared, wish, now.wall_ms).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!diff.change.puts.is_empty()).then_some(diff.change))
            }
            What::Switch { target, off, lines } => {
                let diff = declared::switch(declared, target, *off).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!lines.is_empty()).then_some(diff.change))
            }
            What::Deploy { wish, entropy, lines } => {
                let own = wish.declaration.as_deref().unwrap_or_default();
                self.fits_here(deploy::FILE, own).map_err(Refused::wrong)?;
                let diff = deploy::deploy(declared, wish, now.wall_ms, entropy).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!diff.change.puts.is_empty() || !diff.change.removes.is_empty()).then_some(diff.change))
            }
            What::Rollback { service, to, lines } => {
                let diff = deploy::rollback(declared, service, *to).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok(Some(diff.change))
            }
            What::Scale { service, size, lines } => {
                let diff = services::scale(declared, service, *size).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!lines.is_empty()).then_some(diff.change))
            }
            What::RemoveService { service, lines } => {
                let diff = services::remove(declared, service).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok(Some(diff.change))
            }
            What::SetSecret { service, name, value, entropy, lines } => {
                let of = (service.as_str(), name.as_str());
                let diff = secrets::set(declared, of, value, now.wall_ms, entropy).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!diff.change.puts.is_empty()).then_some(diff.change))
            }
            What::RemoveSecret { service, name, lines } => {
                let diff = secrets::remove(declared, service, name).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok(Some(diff.change))
            }
            What::Certificate { deed, lines } => {
                let diff = deed.diff(declared, now.wall_ms).map_err(Refused::wrong)?;
                *lines = diff.lines;
                Ok((!diff.change.puts.is_empty() || !diff.change.removes.is_empty()).then_some(diff.change))
            }
            What::JoinToken { secret_hash, expires_wall_ms, uses } => {
                tokens::add(declared, now.wall_ms, secret_hash, *expires_wall_ms, *uses)
                    .map(Some)
                    .map_err(Refused::wrong)
            }
            What::RevokeToken { name } => tokens::revoke(declared, name).map(Some).map_err(Refused::wrong),
            What::Admit { secret_hash, name, level, id } => {
                // Who tries tokens hears nothing else before one is good.
                tokens::check(declared, now.wall_ms, secret_hash).map_err(Refused::wrong)?;
                if let Some(why) = level::lacks(*level, level::agreed(declared)) {
                    return Err(Refused::wrong(why));
                }
                tokens::admit(declared, secret_hash, name, *id).map(Some).map_err(Refused::wrong)
            }
            // Somebody else did it.
            What::Remove { id, .. } if self.former(*id).is_some() => Ok(None),
            What::Remove { name, id, force } => {
                if !*force && let Some(namespace) = place::sole(*id, self.placed.values()) {
                    return Err(Refused::busy(
                        format!("nobody else has all of namespace {namespace}"),
                        HANDED_ON_AGAIN,
                    ));
                }
                let lives = self.live_cards().any(|card| card.id == *id);
                if let Some(why) = self.hinders(*id, Leaving::Remove).filter(|_| lives && !*force) {
                    return Err(Refused::busy(why, HANDED_ON_AGAIN));
                }
                let why = if *id == self.me() { "it left for good" } else { "an operator removed it" };
                Ok(Some(former::removal(declared, name, *id, why, now.wall_ms)))
            }
            What::Renew { former, name, why, id } => {
                self.may_renew(*former, name)?;
                let record = former::Former { name: name.clone(), node: *id, why: why.clone(), at_ms: now.wall_ms };
                let puts = vec![
                    (kind::NODE.to_owned(), name.clone(), facts::encode(id)),
                    (kind::FORMER.to_owned(), former::former_key(*former), facts::encode(&record)),
                ];
                let removes = former::oldest_former(declared, *former).into_iter().collect();
                Ok(Some(Change { expect: Some(declared.version), puts, removes }))
            }
            What::Planned { .. } | What::Level(_) | What::Verdict { .. } | What::Runs { .. } | What::Away { .. } => {
                Ok(None)
            }
        }
    }

    /// A node that is to be somebody else takes its votes with it. So each group that it was in must have a majority
    /// without it, which then has all that was ever acknowledged: a read of each shows that. The root group shows it by
    /// agreeing. (Groups in memory find out by themselves what they have without it, `cluster/raft/recall.rs`.)
    fn renew(&mut self, now: Now, pending: Pending, out: &mut Out) {
        let What::Renew { former, name, .. } = &pending.what else { unreachable!("only a renewal is renewed") };
        let former = *former;
        if let Err(refused) = self.may_renew(former, name) {
            return finish(pending, Outcome::Refused(refused), 0, None, out);
        }
        let placed = self.placed.values();
        // A group in memory may be waiting for this very node: as long as it does it answers nobody.
        let asked = placed.filter(|p| p.members.contains(&former) && !p.memory);
        let groups: Vec<GroupId> = asked.map(|p| p.id).collect();
        if groups.is_empty() {
            return self.queue(pending);
        }
        self.proposals += 1;
        let id = self.proposals;
        let budget = pending.deadline.since(now.mono).min(PROBE_WITHIN);
        self.probing.insert(id, (pending, groups.len()));
        for group in groups {
            let probe = linear::Input::Probe { id, group, budget };
            self.classes_in(now, out, |classes, wants| classes.linear(now, probe, wants));
        }
    }

    /// A group that a renewal asked about has a majority, or has not.
    pub(crate) fn probed(&mut self, id: u64, answers: bool, out: &mut Out) {
        let Some((pending, left)) = self.probing.remove(&id) else { return };
        if !answers {
            let why = "a group that it was in has no majority without it now";
            return finish(pending, Outcome::Refused(Refused::busy(why, HANDED_ON_AGAIN)), 0, None, out);
        }
        match left {
            1 => self.queue(pending),
            _ => drop(self.probing.insert(id, (pending, left - 1))),
        }
    }

    /// A node of the declaration that does not live.
    fn is_away(&self, name: &str) -> bool {
        let id = self.root.declared().get(kind::NODE, name).and_then(|bytes| facts::decode::<NodeId>(bytes));
        id.is_some_and(|id| !self.live_cards().any(|card| card.id == id))
    }

    /// Whom the declaration names so; an outcome if that is nobody.
    fn named(&self, name: &str) -> Result<NodeId, Outcome<()>> {
        let declared = self.root.declared();
        let wrong = |why| Outcome::Refused(Refused::wrong(why));
        match declared.get(kind::NODE, name).and_then(|bytes| facts::decode(bytes)) {
            Some(id) if id == self.me() => Err(wrong("ask another node: this one is the one to be removed".to_owned())),
            Some(id) => Ok(id),
            None if former::was_removed(declared, name) => Err(Outcome::Done(())),
            None => {
                let known = declared::listed(declared.of_kind(kind::NODE).map(|(name, _)| name));
                Err(wrong(format!("no node is named {name:?}; there are: {known}")))
            }
        }
    }

    pub(crate) fn propose_level(&mut self, now: Now, level: u32, out: &mut Out) {
        if !self.pending.values().any(|p| matches!(p.what, What::Level(_))) {
            self.propose_own(now, What::Level(level), vec![level::put(level)], Vec::new(), out);
        }
    }

    /// Whether what a class planned is under way.
    pub(crate) fn is_planned(&self, of: Class) -> bool {
        self.pending.values().any(|p| matches!(p.what, What::Planned { class, .. } if class == of))
    }

    pub(crate) fn propose_plan(&mut self, now: Now, class: Class, plan: Plan<Bytes>, out: &mut Out) {
        let kind = class.records();
        let puts = plan.puts.into_iter().map(|(name, record)| (kind.to_owned(), name, record)).collect();
        let removes = plan.removes.into_iter().map(|name| (kind.to_owned(), name)).collect();
        self.propose_own(now, What::Planned { class, told: plan.told }, puts, removes, out);
    }

    fn propose_own(
        &mut self,
        now: Now,
        what: What,
        puts: Vec<(String, String, Bytes)>,
        removes: Vec<(String, String)>,
        out: &mut Out,
    ) {
        let change = Change { expect: Some(self.root.declared().version), puts, removes };
        self.propose_change(now, what, change, out);
    }

    /// What the manager says of a version that it rolled out becomes part of the declaration.
    pub(crate) fn propose_verdict(
        &mut self,
        now: Now,
        service: String,
        number: u32,
        why: Option<String>,
        out: &mut Out,
    ) {
        if self.pending.values().any(|p| matches!(p.what, What::Verdict { .. })) {
            return;
        }
        let Some(change) = deploy::verdict(self.root.declared(), &service, number, why.as_deref()) else { return };
        let text = match why {
            Some(why) => format!("version {number} is taken back: {why}"),
            None => format!("version {number} serves everywhere"),
        };
        self.propose_change(now, What::Verdict { service, text }, change, out);
    }

    /// Runs that begin or have ended.
    pub(crate) fn propose_runs(
        &mut self,
        now: Now,
        told: Vec<(&'static str, String, String)>,
        change: Change,
        out: &mut Out,
    ) {
        self.propose_change(now, What::Runs { told }, change, out);
    }

    /// Whether such a change is under way.
    pub(crate) fn plans_runs(&self) -> bool {
        self.pending.values().any(|p| matches!(p.what, What::Runs { .. }))
    }

    pub(crate) fn plans_away(&self) -> bool {
        self.pending.values().any(|p| matches!(p.what, What::Away { .. }))
    }

    pub(crate) fn propose_change(&mut self, now: Now, what: What, change: Change, out: &mut Out) {
        self.proposals += 1;
        let (id, budget) = (self.proposals, OWN_CHANGE_BUDGET);
        let pending = Pending { id: AskId(0), deadline: now.mono + budget, waits_for_version: None, what };
        self.pending.insert(id, pending);
        self.root_in(now, root::Input::Propose { id, budget, change }, out);
    }

    pub(crate) fn proposed(&mut self, now: Now, id: u64, outcome: Outcome<Result<u64, Conflict>>, out: &mut Out) {
        let Some(mut pending) = self.pending.remove(&id) else { return };
        match outcome {
            Outcome::Done(Ok(version)) => {
                if let What::Apply { file: who, lines, .. } | What::Rotate { namespace: who, lines, .. } = &pending.what
                {
                    self.happened(now, "applied", who, lines.join("; "));
                }
                if let What::RenewToken { wish, lines } = &pending.what {
                    self.happened(now, "token", &wish.whose.shown(), lines.join("; "));
                }
                if let What::TurnAuthority { lines, .. } = &pending.what {
                    self.happened(now, "authority", "cluster", lines.join("; "));
                }
                if let What::Switch { target, lines, .. } = &pending.what {
                    self.happened(now, "switched", &target.to_string(), lines.join("; "));
                }
                if let What::Scale { service, lines, .. } | What::RemoveService { service, lines } = &pending.what {
                    self.happened(now, "applied", service, lines.join("; "));
                }
                if let What::SetSecret { service, lines, .. } | What::RemoveSecret { service, lines, .. } =
                    &pending.what
                {
                    let news = lines.first().cloned().unwrap_or_default();
                    self.happened(now, "secret", service, news);
                }
                if let What::Certificate { deed, lines } = &pending.what {
                    self.certified_by(now, deed, lines, out);
                }
                if let What::Verdict { service, text } = &pending.what {
                    self.decided(now, "deployed", service, text.clone(), out);
                }
                if let What::Level(level) = pending.what {
                    let (cluster, text) =
                        (self.cluster.clone(), format!("the cluster agrees on level {level}: all nodes have it"));
                    self.decided(now, "level", &cluster, text, out);
                }
                if let What::Runs { told } = &pending.what {
                    for (kind, who, text) in told {
                        self.decided(now, kind, who, text.clone(), out);
                    }
                }
                if let What::Away { told: Some((name, text)) } = &pending.what {
                    self.decided(now, "away", name, text.clone(), out);
                }
                if let What::Planned { told, .. } = &pending.what {
                    for (kind, who, text) in told {
                        self.decided(now, kind, who, text.clone(), out);
                    }
                }
                if let What::Admit { secret_hash, name, .. } = &pending.what {
                    let (token, name) = (tokens::name(secret_hash), name.clone());
                    self.decided(now, "joined", &name, format!("was admitted by token {token}"), out);
                }
                if let What::Deploy { lines, .. } | What::Rollback { lines, .. } = &pending.what {
                    self.happened(now, "applied", "deploy", lines.join("; "));
                }
                let authority = self.authority();
                finish(pending, Outcome::Done(()), version, authority, out);
            }
            Outcome::Done(Err(conflict)) => match &pending.what {
                // The leader looks again at its next tick.
                What::Planned { .. }
                | What::Level(_)
                | What::Verdict { .. }
                | What::Runs { .. }
                | What::Away { .. } => (),
                // It is still the first of its queue.
                _ => {
                    pending.waits_for_version = Some(conflict.version);
                    self.pending.insert(id, pending);
                }
            },
            Outcome::Refused(refused) => finish(pending, Outcome::Refused(refused), 0, None, out),
            Outcome::Unknown(unknown) => finish(pending, Outcome::Unknown(unknown), 0, None, out),
        }
    }

    /// The root group ends every proposal within its budget; what waits for its turn is ended here.
    pub(crate) fn expire_pending(&mut self, now: Now, out: &mut Out) {
        let late = |p: &Pending| p.waits_for_version.is_some() && p.deadline <= now.mono;
        let ids: Vec<u64> = self.pending.iter().filter(|(_, p)| late(p)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(pending) = self.pending.remove(&id) {
                finish(pending, Outcome::Refused(out_of_time()), 0, None, out);
            }
        }
    }

    /// As of what this node knows of the declaration: it has the authority's key from there. If it was removed
    /// meanwhile, it is told so when it comes with its new certificate, and that opens nothing.
    fn certify(&self) -> Outcome<Admitted> {
        if self.root.declared().version == 0 {
            let why = "this node has not heard of the declaration yet";
            return Outcome::Refused(Refused::busy(why, ASK_AGAIN));
        }
        if self.admission.of(&self.card) != Word::In {
            return Outcome::Refused(Refused::wrong(format!("the declaration names no {} of this id", self.card.name)));
        }
        signs(self.me(), self.authority())
    }

    fn authority(&self) -> Option<Authority> {
        Authority::of(self.root.declared())
    }
}

fn out_of_time() -> Refused {
    Refused::busy("changes before it took until its time was over", ASK_AGAIN)
}

/// Ends an ask with what became of its change.
fn finish(pending: Pending, outcome: Outcome<()>, version: u64, authority: Option<Authority>, out: &mut Out) {
    fn with<T>(outcome: Outcome<()>, done: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        match outcome {
            Outcome::Done(()) => done(),
            Outcome::Refused(refused) => Outcome::Refused(refused),
            Outcome::Unknown(unknown) => Outcome::Unknown(unknown),
        }
    }
    let answer = match pending.what {
        What::Apply { lines, .. }
        | What::Rotate { lines, .. }
        | What::RenewToken { lines, .. }
        | What::TurnAuthority { lines, .. }
        | What::Switch { lines, .. }
        | What::Scale { lines, .. }
        | What::RemoveService { lines, .. }
        | What::SetSecret { lines, .. }
        | What::RemoveSecret { lines, .. }
        | What::Certificate { lines, .. }
        | What::Deploy { lines, .. }
        | What::Rollback { lines, .. } => {
            Answer::Applied(with(outcome, || Outcome::Done(Applied { changes: lines, version })))
        }
        What::JoinToken { .. } | What::RevokeToken { .. } | What::Remove { .. } => Answer::Done(outcome),
        What::Admit { id, .. } | What::Renew { id, .. } => Answer::Admitted(with(outcome, || signs(id, authority))),
        What::Planned { .. } | What::Level(_) | What::Verdict { .. } | What::Runs { .. } | What::Away { .. } => return,
    };
    out.push(Effect::Answer { id: pending.id, answer });
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
