//! CLIENT TRACKING, CACHING, GETREDIR, TRACKINGINFO: a client that keeps values is told when they change.

use std::rc::Rc;

use bytes::Bytes;

use super::*;
use crate::resp::changes::tracking::{How, PREFIXES_MAX, Which};
use crate::resp::client::Change;
use crate::resp::encode::Protocol;

/// What CLIENT TRACKING ON asks for.
struct Asked {
    how: How,
    noloop: bool,
    redirect: Option<u64>,
}

pub fn tracking(call: &mut Call<'_>) -> Act {
    if is(call.command.arg(2), "OFF") {
        return Act::Now(client::change(call, Change::TracksNone));
    }
    if !is(call.command.arg(2), "ON") {
        return syntax_error();
    }
    if call.client.multi.is_some() {
        return Act::Now(Reply::error("ERR 'CLIENT TRACKING' cannot stand inside MULTI"));
    }
    match begin(call) {
        Ok(act) => act,
        Err(why) => Act::Now(Reply::Error(format!("ERR {why}"))),
    }
}

fn begin(call: &mut Call<'_>) -> Result<Act, String> {
    let Asked { mut how, noloop, redirect } = asked(call)?;
    if let Some(had) = &call.client.tracks {
        joins(had.how(), &mut how)?;
    }
    if redirect.is_none() && call.client.protocol == Protocol::Resp2 {
        return Err("in RESP2 nothing can be told between replies: HELLO 3 first, or REDIRECT to a connection of this node that \
                    listens to __redis__:invalidate"
            .to_owned());
    }
    let (id, namespace, class) = (call.client.id, call.space().name, call.client.class());
    let home = call.home();
    if let Some(to) = redirect
        && !call.node.clients.is_there(to, &home)
    {
        return Err("The client ID you want redirect to does not exist".to_owned());
    }
    let wants = call.node.changes.want(&namespace, class, None)?;
    let all = Rc::clone(&call.node.subscribers);
    let to = match redirect {
        Some(to) => Err(to),
        None => Ok(Rc::clone(&call.client.hears.get_or_insert_with(|| all.enter(id, &home)).listener)),
    };
    // What was kept of it until now is not any more: it is told of all, or reads anew.
    call.client.tracks = None;
    let tracks = call.node.changes.track((id, &home, &namespace), (how, noloop), to, wants);
    let begun = tracks.begun();
    call.client.tracks = Some(Box::new(tracks));
    Ok(Call::later(async move { begun.await.map_or_else(|error| error, |()| Reply::OK) }))
}

/// Reads the options, as Redis does.
fn asked(call: &Call<'_>) -> Result<Asked, String> {
    let command = call.command;
    let (mut redirect, mut noloop, mut by_prefix, mut which) = (None, false, false, Which::All);
    let (mut prefixes, mut at): (Vec<Bytes>, usize) = (Vec::new(), 3);
    while at < command.len() {
        let (word, next) = (command.arg(at), at + 1);
        let has_more = next < command.len();
        match word {
            word if is(word, "REDIRECT") && has_more => {
                if redirect.is_some() {
                    return Err("A client can only redirect to a single other client".to_owned());
                }
                let id = integer(command.arg(next)).ok_or("value is not an integer or out of range")?;
                redirect = Some(u64::try_from(id).map_err(|_| "The client ID you want redirect to does not exist")?);
                at += 1;
            }
            word if is(word, "PREFIX") && has_more => {
                prefixes.push(command.value(next));
                at += 1;
            }
            word if is(word, "BCAST") => by_prefix = true,
            word if is(word, "NOLOOP") => noloop = true,
            word if is(word, "OPTIN") || is(word, "OPTOUT") => {
                let said = if is(word, "OPTIN") { Which::OptIn } else { Which::OptOut };
                if which != Which::All && which != said {
                    return Err("You can't specify both OPTIN mode and OPTOUT mode".to_owned());
                }
                which = said;
            }
            _ => return Err("syntax error".to_owned()),
        }
        at += 1;
    }
    if !by_prefix && !prefixes.is_empty() {
        return Err("PREFIX option requires BCAST mode to be enabled".to_owned());
    }
    if by_prefix && which != Which::All {
        return Err("OPTIN and OPTOUT are not compatible with BCAST".to_owned());
    }
    let how = if by_prefix { How::Prefixes(prefixes) } else { How::Read(which) };
    if let How::Prefixes(prefixes) = &how {
        are_apart(prefixes, &[])?;
    }
    Ok(Asked { how, noloop, redirect: redirect.filter(|id| *id != 0) })
}

/// May a client that is told so be told so from now on? Prefixes come to those that it has.
fn joins(had: &How, how: &mut How) -> Result<(), String> {
    match (had, how) {
        (How::Prefixes(had), How::Prefixes(more)) => {
            are_apart(more, had)?;
            more.splice(0..0, had.iter().cloned());
            Ok(())
        }
        (How::Read(Which::OptIn), How::Read(Which::OptOut)) | (How::Read(Which::OptOut), How::Read(Which::OptIn)) => {
            Err("You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
                 with a different mode."
                .to_owned())
        }
        (How::Read(_), How::Read(_)) => Ok(()),
        _ => Err("You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
                  with a different mode."
            .to_owned()),
    }
}

/// None of them begins another one: a key would be told twice.
fn are_apart(prefixes: &[Bytes], had: &[Bytes]) -> Result<(), String> {
    if prefixes.len() + had.len() > PREFIXES_MAX {
        return Err(format!("one client names {PREFIXES_MAX} prefixes at most"));
    }
    if prefixes.iter().any(|prefix| prefix.len() > base::limits::KEY_BYTES_MAX) {
        return Err(format!("a prefix has {} bytes at most", base::limits::KEY_BYTES_MAX));
    }
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    for (nth, prefix) in prefixes.iter().enumerate() {
        let meets = |other: &&Bytes| prefix.starts_with(other) || other.starts_with(prefix);
        if let Some(other) = had.iter().find(meets) {
            return Err(format!(
                "Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client must not overlap.",
                text(prefix),
                text(other)
            ));
        }
        if let Some(other) = prefixes[nth + 1..].iter().find(meets) {
            return Err(format!(
                "Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a single client must not overlap.",
                text(prefix),
                text(other)
            ));
        }
    }
    Ok(())
}

pub fn caching(call: &Call<'_>) -> Reply {
    let Some(tracks) = &call.client.tracks else {
        return Reply::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    let said = match call.command.arg(2) {
        said if is(said, "YES") => true,
        said if is(said, "NO") => false,
        _ => return Reply::error("ERR syntax error"),
    };
    match (tracks.how(), said) {
        (How::Read(Which::OptIn), true) | (How::Read(Which::OptOut), false) => {
            tracks.caching.set(Some(said));
            Reply::OK
        }
        (_, true) => Reply::error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        (_, false) => Reply::error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
    }
}

/// -1: nobody is told; 0: the client itself.
pub fn redirect(call: &Call<'_>) -> Reply {
    let tracks = call.client.tracks.as_ref();
    Reply::Int(tracks.map_or(-1, |tracks| tracks.redirect().map_or(0, |id| id as i64)))
}

pub fn info(call: &Call<'_>) -> Reply {
    let (mut flags, mut prefixes) = (Vec::new(), Vec::new());
    match &call.client.tracks {
        None => flags.push("off"),
        Some(tracks) => {
            flags.push("on");
            match tracks.how() {
                How::Prefixes(all) => {
                    flags.push("bcast");
                    prefixes = all.clone();
                }
                How::Read(Which::OptIn) => flags.push("optin"),
                How::Read(Which::OptOut) => flags.push("optout"),
                How::Read(Which::All) => (),
            }
            match tracks.caching.get() {
                Some(true) => flags.push("caching-yes"),
                Some(false) => flags.push("caching-no"),
                None => (),
            }
            if tracks.noloop {
                flags.push("noloop");
            }
            if tracks.is_broken() {
                flags.push("broken_redirect");
            }
        }
    }
    Reply::Map(vec![
        (Reply::word("flags"), Reply::Set(flags.into_iter().map(Reply::word).collect())),
        (Reply::word("redirect"), redirect(call)),
        (Reply::word("prefixes"), Reply::List(prefixes.into_iter().map(Reply::Bulk).collect())),
    ])
}
