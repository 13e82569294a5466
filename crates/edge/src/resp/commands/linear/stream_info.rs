//! XINFO: what is known of a stream, its groups and their consumers.

use super::stream::{entries_of, entry, fault_of_group, is_fault, now, number, plain_row, rows};
use super::*;

const INFO_OFFERED: &str = "STREAM key [FULL [COUNT count]], GROUPS key and CONSUMERS key group";

pub fn info(call: &mut Call<'_>) -> Result<Act, Reply> {
    let command = call.command;
    let (sub, len) = (command.arg(1), command.len());
    let (function, args, then): (_, _, Then) = match len {
        3 if is(sub, "STREAM") => ("stream.info", Vec::new(), stream_info),
        3 if is(sub, "GROUPS") => ("stream.groups", Vec::new(), groups_info),
        4 if is(sub, "CONSUMERS") => ("stream.consumers", vec![command.key(3), now()], consumers_info),
        4 | 6 if is(sub, "STREAM") && is(command.arg(3), "FULL") => {
            let count = match len {
                4 => 10,
                _ if is(command.arg(4), "COUNT") => number(command.arg(5))?,
                _ => return Ok(unknown_subcommand(call, INFO_OFFERED)),
            };
            let count = match count {
                0 => -1,
                count if count < 0 => 10,
                count => count,
            };
            ("stream.info-full", vec![word(count.to_string())], full_info)
        }
        _ => return Ok(unknown_subcommand(call, INFO_OFFERED)),
    };
    Ok(steps(call, vec![Step::new(command.key(2), function, args)], then))
}

// How replies read.

fn map(names: &[&'static str], values: Vec<Reply>) -> Reply {
    Reply::Map(names.iter().map(|name| Reply::word(name)).zip(values).collect())
}

const COUNTERS: [&str; 7] = [
    "length",
    "radix-tree-keys",
    "radix-tree-nodes",
    "last-generated-id",
    "max-deleted-entry-id",
    "entries-added",
    "recorded-first-entry-id",
];

/// The counters of a stream, and what stands behind them; or an error.
fn counters(got: Vec<Got>) -> Result<(Vec<Reply>, std::vec::IntoIter<Got>), Reply> {
    let list = match only(got) {
        Got::List(list) => list,
        other => return Err(plain_one(other)),
    };
    let mut list = list.into_iter();
    let mut told: Vec<Reply> = list.by_ref().take(COUNTERS.len() - 1).map(plain_one).collect();
    let nodes = if let Some(Reply::Int(blocks)) = told.get(1) { blocks + 1 } else { 0 };
    told.insert(2, Reply::Int(nodes));
    Ok((told, list))
}

fn stream_info(got: Vec<Got>) -> Reply {
    let (mut told, mut rest) = match counters(got) {
        Ok(counted) => counted,
        Err(error) => return error,
    };
    told.push(rest.next().map_or(Reply::Nil, plain_one));
    told.extend(rest.map(|got| match got {
        Got::List(list) => rows(list, 2).next().map_or(Reply::Nil, entry),
        other => plain_one(other),
    }));
    map(&[&COUNTERS[..], &["groups", "first-entry", "last-entry"]].concat(), told)
}

fn full_info(got: Vec<Got>) -> Reply {
    let (mut told, mut rest) = match counters(got) {
        Ok(counted) => counted,
        Err(error) => return error,
    };
    let lists = [rest.next(), rest.next()].map(|list| if let Some(Got::List(list)) = list { list } else { Vec::new() });
    let [entries, groups] = lists;
    told.push(entries_of(entries));
    told.push(Reply::List(rows(groups, 7).map(full_group).collect()));
    map(&[&COUNTERS[..], &["entries", "groups"]].concat(), told)
}

fn full_group(mut row: Vec<Got>) -> Reply {
    let lists = [row.pop(), row.pop()].map(|list| if let Some(Got::List(list)) = list { list } else { Vec::new() });
    let [consumers, pending] = lists;
    let consumer = |mut row: Vec<Got>| {
        let pending = if let Some(Got::List(list)) = row.pop() { list } else { Vec::new() };
        let mut told: Vec<Reply> = row.into_iter().map(plain_one).collect();
        told.push(Reply::List(rows(pending, 3).map(plain_row).collect()));
        map(&["name", "seen-time", "active-time", "pel-count", "pending"], told)
    };
    let mut told: Vec<Reply> = row.into_iter().map(plain_one).collect();
    told.push(Reply::List(rows(pending, 4).map(plain_row).collect()));
    told.push(Reply::List(rows(consumers, 5).map(consumer).collect()));
    map(&["name", "last-delivered-id", "entries-read", "lag", "pel-count", "pending", "consumers"], told)
}

fn groups_info(got: Vec<Got>) -> Reply {
    let names = ["name", "consumers", "pending", "last-delivered-id", "entries-read", "lag"];
    maps(got, &names)
}

fn consumers_info(got: Vec<Got>) -> Reply {
    maps(got, &["name", "pending", "idle", "inactive"])
}

fn maps(got: Vec<Got>, names: &[&'static str]) -> Reply {
    match only(got) {
        Got::List(list) if is_fault(&list) => fault_of_group(list),
        Got::List(list) => {
            let one = |row: Vec<Got>| map(names, row.into_iter().map(plain_one).collect());
            Reply::List(rows(list, names.len()).map(one).collect())
        }
        other => plain_one(other),
    }
}
