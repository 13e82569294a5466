//! JSON documents, kept as text.

use serde_json::Value as Json;

use super::*;
use crate::limits::VALUE_BYTES_MAX;

/// Deeper patches are refused: merging goes down by calling itself.
const DEPTH_MAX: usize = 64;

pub const ALL: &[Function] = &[write("json.merge", "patch", |space, key, args| {
    let patch: Json = serde_json::from_slice(one(args)?).map_err(|_| Wrong::NotJson)?;
    let mut document = match text_of(space, key)? {
        Some(text) => serde_json::from_slice(text).map_err(|_| Wrong::NotJson)?,
        None => Json::Null,
    };
    merge(&mut document, patch, 0)?;
    let text = serde_json::to_vec(&document).map_err(|_| Wrong::NotJson)?;
    if text.len() > VALUE_BYTES_MAX {
        return Err(Wrong::TooLarge);
    }
    let text = Bytes::from(text);
    space.set_keeping_end(key, Value::Text(text.clone()));
    Ok(Reply::Bytes(text))
})];

/// RFC 7396.
fn merge(document: &mut Json, patch: Json, depth: usize) -> std::result::Result<(), Wrong> {
    let Json::Object(patch) = patch else {
        *document = patch;
        return Ok(());
    };
    if depth > DEPTH_MAX {
        return Err(Wrong::NotJson);
    }
    if !document.is_object() {
        *document = Json::Object(serde_json::Map::new());
    }
    let map = document.as_object_mut().expect("it was just made one");
    for (name, value) in patch {
        if value.is_null() {
            map.remove(&name);
        } else {
            merge(map.entry(name).or_insert(Json::Null), value, depth + 1)?;
        }
    }
    Ok(())
}
