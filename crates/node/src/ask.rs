//! What front doors may ask of their node, and the answers. Any node answers any question, whoever leads.

use std::collections::BTreeSet;

use base::process::Private;
use base::{Exit, NodeId, Outcome, Refused};
use bytes::Bytes;
use clones::off::Target;
use clones::runs::Once;
use clones::{Demand, Doors, Size, members};
use serde::{Deserialize, Serialize};

use crate::{SecretView, authority, certificates, deploy, renewed};

/// Makes [`Ask`], [`Answer`] and what turns them into the enums of `state` and back, of the list of classes.
macro_rules! asks {
    ($($Class:ident),*) => {
        #[derive(Clone, Debug)]
        pub enum Ask {
            $(
                /// An operation of this class.
                $Class(state::ops::$Class),
            )*
            /// Something about a service's clones as a group.
            Members(members::Op),
            /// Messages between clients of all nodes.
            Channels(channels::Op),
            /// Compare a declaration (TOML) with what is declared; unless `dry_run`, make it so, all or nothing.
            /// `entropy` makes the secrets of new namespaces: chance that is good enough for those comes from the front
            /// door.
            Apply { file: String, text: String, dry_run: bool, entropy: [u8; 32] },
            /// A new key, made of `entropy`, for a namespace's cookies; answered as `Apply` is. With `end_sessions` the
            /// old keys go at once.
            Rotate { namespace: String, entropy: [u8; 32], end_sessions: bool },
            /// What this node's edge saw since the last time: goes to the manager, if there is one. Done at once.
            Demand(Demand),
            /// What comes to this node's edge by priority: goes to all nodes. Answered at once, with what the others
            /// said last.
            Doors(Doors),
            /// Make a folder the next version of a service; answered as `Apply` is.
            Deploy { wish: deploy::Wish, entropy: [u8; 32] },
            /// Take back what is being rolled out, or go back to an older version; answered as `Apply` is.
            Rollback { service: String, to: Option<u32> },
            /// Give a service another number of clones; answered as `Apply` is.
            Scale { service: String, size: Size },
            /// End a service; answered as `Apply` is.
            RemoveService { service: String },
            /// Set a secret of a service; answered as `Apply` is. `entropy` seals it.
            SetSecret { service: String, name: String, value: Private, entropy: [u8; 32] },
            /// Take a secret of a service away; answered as `Apply` is.
            RemoveSecret { service: String, name: String },
            /// The secrets of a service, without their values.
            Secrets { service: String },
            /// Another token for the operator, or for a namespace; answered as `Apply` is.
            RenewToken(renewed::Renewal),
            /// The next turn towards another authority of the cluster; answered as `Apply` is.
            TurnAuthority(authority::Turn),
            /// Secrets of all services and certificates of the cluster, sealed with this key, for a backup. `entropy`
            /// is chance.
            Seal { key: Private, entropy: [u8; 32] },
            /// Run a command once, as a clone of a service, on this node.
            Run(Once),
            /// How it ended, if it has.
            RunEnd { number: u64 },
            /// Who ran it is gone: it is to end. Done at once.
            EndRun { number: u64 },
            /// Set a certificate of the cluster, or take one away; answered as `Apply` is.
            Certificate(certificates::Deed),
            /// Archives of deployed folders that are on this node. Done at once.
            Codes(BTreeSet<String>),
            /// Take a node, or a part of a service, out of use, or back into it; answered as `Apply` is.
            Switch { target: Target, off: bool },
            /// What is declared, as TOML that `Apply` takes.
            Export,
            /// A new token for nodes that join, good for so long and so many of them.
            JoinToken { secret_hash: [u8; 32], expires_wall_ms: u64, uses: u32 },
            /// Tokens for nodes that join that are live.
            JoinTokens,
            /// Ends one of them, by its name.
            RevokeToken { name: String },
            /// Let the node of this name restart, or leave for good; `force` if its memory or the others' is needed
            /// meanwhile.
            Leave { name: String, how: crate::Leaving, force: bool },
            /// Take a node out of the declaration for good, whatever it still has: its certificate opens nothing any
            /// more. Without `force` only if nothing is lost by it.
            Remove { name: String, force: bool },
            /// This node leaves for good, and its doors are closed: it is none of the cluster's any more.
            Depart,
            /// May this node, whose disk is not to be trusted, be somebody else from now on? The host signs as for
            /// `Admit`.
            Renew { former: NodeId, name: String, why: String, wish: NodeId },
            /// May this node have another certificate? It may as long as it is named. The host signs as for `Admit`.
            Certify,
            /// ... and what became of it, for the events. Done at once.
            Certified { text: String },
            /// A service's overload begins or ends, as this node's doors see it.
            Overload { of: String, text: String },
            /// May a node with this secret and name, and a program of this level, join? The host signs its certificate
            /// if so.
            Admit { secret_hash: [u8; 32], name: String, level: u32, wish: NodeId },
        }

        #[derive(Clone, Debug)]
        pub enum Answer {
            $($Class(Outcome<state::replies::$Class>),)*
            Members(Outcome<members::Reply>),
            Channels(Outcome<channels::Reply>),
            Applied(Outcome<Applied>),
            Exported(String),
            Done(Outcome<()>),
            JoinTokens(Vec<JoinTokenView>),
            Secrets(Outcome<Vec<SecretView>>),
            Sealed(Outcome<Private>),
            Run(Outcome<RunStarted>),
            /// None if there is no such run (any more); inside: none while it runs.
            RunEnd(Option<Option<RunEnd>>),
            /// What each other edge said that was heard of just now.
            Doors(Vec<Doors>),
            Admitted(Outcome<Admitted>),
        }

        impl Ask {
            /// The class that it is an operation of, if it is one.
            pub fn class(&self) -> Option<state::Class> {
                match self {
                    $(Ask::$Class(_) => Some(state::Class::$Class),)*
                    _ => None,
                }
            }

            /// What whoever asked for an operation hears if it is refused. None of what is no operation of a class.
            pub fn refused(&self, refused: Refused) -> Option<Answer> {
                match self {
                    $(Ask::$Class(_) => Some(Answer::$Class(Outcome::Refused(refused))),)*
                    _ => None,
                }
            }

            /// The operation of a class, if it is one.
            pub(crate) fn op(self) -> Option<state::Op> {
                match self {
                    $(Ask::$Class(op) => Some(state::Op::$Class(op)),)*
                    _ => None,
                }
            }
        }

        impl From<state::Op> for Ask {
            fn from(op: state::Op) -> Self {
                match op {
                    $(state::Op::$Class(op) => Ask::$Class(op)),*
                }
            }
        }

        impl From<state::Answer> for Answer {
            fn from(answer: state::Answer) -> Self {
                match answer {
                    $(state::Answer::$Class(outcome) => Answer::$Class(outcome)),*
                }
            }
        }
    };
}

state::each_class!(asks);

/// The pattern of operations of all classes.
macro_rules! any_class {
    ($($Class:ident),*) => { $(crate::Ask::$Class(_))|* };
}
pub(crate) use any_class;

/// What an apply changed, or would change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Applied {
    /// `+ service shop`, `~ namespace carts: lease "30m" -> "1h"`, `- service old`. Empty: nothing to do.
    pub changes: Vec<String>,
    /// Version of the declaration after it.
    pub version: u64,
}

/// What an operator runs has begun on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunStarted {
    pub number: u64,
    /// Under which number of a clone its output is kept.
    pub clone: u32,
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEnd {
    pub exit: Exit,
    /// Why it was ended, if it did not by itself.
    pub why: Option<String>,
}

/// A join token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinTokenView {
    /// The first letters of its secret's hash.
    pub name: String,
    /// Milliseconds since 1970.
    pub expires_at_ms: u64,
    /// Nodes that may still join with it; none: any number (made by an older program).
    pub uses_left: Option<u32>,
}

/// What a newcomer needs, next to its certificate.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub id: NodeId,
    /// PEM of the cluster's authority and its key, with which the host signs.
    pub ca_cert: Bytes,
    pub ca_key: Bytes,
    /// Certificates of authorities that are to be trusted, too, as long as another one takes its place.
    pub also: Vec<Bytes>,
    /// Which turn of that is followed with it.
    pub turn: u64,
}
