//! The example shop that `coppice up` deploys. It is the one of `examples/cart`, carried inside the program so that it
//! runs from any folder.

use std::path::Path;

use crate::client::Api;

pub const SERVICE: &str = "shop";

const PROGRAM: &str = include_str!("../../../examples/cart/cart.py");
const DECLARATION: &str = include_str!("../../../examples/cart/coppice.toml");

/// Lays the program down under `dir` and declares it. Declaring it again changes nothing.
pub async fn deploy(dir: &Path, api: &Api) -> Result<(), String> {
    let folder = dir.join("demo");
    let wrong = |e: std::io::Error| format!("cannot write {}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(wrong)?;
    std::fs::write(folder.join("cart.py"), PROGRAM).map_err(wrong)?;
    let folder = folder.canonicalize().map_err(wrong)?;
    let declaration = declaration(&folder.display().to_string());
    // The group may be between two leaders for a moment after its start; the declaration is idempotent.
    let mut last = String::new();
    for _ in 0..50 {
        match api.post("/v1/apply", "demo.toml", declaration.clone()).await.and_then(|reply| reply.json()) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(format!("cannot deploy the example shop: {last}"))
}

fn declaration(folder: &str) -> String {
    let quoted = serde_json::to_string(folder).expect("a string is JSON");
    DECLARATION.replace("dir = \"examples/cart\"", &format!("dir = {quoted}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_examples_folder_is_replaced_by_where_it_was_laid_down() {
        let text = super::declaration("/some where");
        assert!(text.contains("dir = \"/some where\"") && !text.contains("examples/cart\""));
    }

    #[test]
    fn the_shop_stays_under_80_lines() {
        assert!(super::PROGRAM.lines().count() < 80);
    }
}
