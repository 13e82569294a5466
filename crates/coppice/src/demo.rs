//! The example shop that `coppice up` deploys, once. It is the one of `examples/cart`, carried inside the program so that
//! it runs from any folder.

use std::path::Path;

use node::view::View;

use crate::client::Api;

pub const SERVICE: &str = "shop";

/// Below that of `up`.
const FOLDER: &str = "demo";
/// What was declared; says that it was.
const APPLIED: &str = "coppice.toml";
const PROGRAM: &str = include_str!("../../../examples/cart/cart.py");
const DECLARATION: &str = include_str!("../../../examples/cart/coppice.toml");

/// Whether the shop is to be deployed: it never was, and nothing else is there. What an operator made of it since, or put in
/// its place, stays when `up` starts again.
pub fn is_wanted(dir: &Path, view: &View) -> bool {
    view.services.is_empty() && !dir.join(FOLDER).join(APPLIED).exists()
}

/// Whether the shop is there, as far as can be seen: no other was deployed in its place.
pub fn is_there(view: &View) -> bool {
    view.services.iter().any(|service| service.name == SERVICE && service.version == 0)
}

/// Lays the program down under `dir` and declares it.
pub async fn deploy(dir: &Path, api: &Api) -> Result<(), String> {
    let folder = dir.join(FOLDER);
    let wrong = |e: std::io::Error| format!("cannot write {}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(wrong)?;
    std::fs::write(folder.join("cart.py"), PROGRAM).map_err(wrong)?;
    let folder = folder.canonicalize().map_err(wrong)?;
    let declaration = declaration(&folder.display().to_string());
    // The group may be between two leaders for a moment after its start; the declaration is idempotent.
    let mut last = String::new();
    for _ in 0..50 {
        match api.post("/v1/apply", "demo.toml", declaration.clone()).await.and_then(|reply| reply.json()) {
            // Last, so that one who was interrupted before does it once more.
            Ok(_) => {
                return std::fs::write(folder.join(APPLIED), declaration)
                    .map_err(|e| format!("cannot write {}: {e}", folder.display()));
            }
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
    fn the_shop_is_deployed_once_and_never_beside_something_else() {
        let dir = std::env::temp_dir().join(format!("coppice-demo-{}", std::process::id()));
        std::fs::create_dir_all(dir.join(super::FOLDER)).unwrap();
        let view =
            |services| -> super::View { serde_json::from_value(serde_json::json!({"services": services})).unwrap() };
        let shop = |version: u32| serde_json::json!([{"name": "shop", "wanted": 3, "clones": [], "at": [], "version": version}]);
        let (none, declared, deployed) = (view(serde_json::json!([])), view(shop(0)), view(shop(2)));
        assert!(super::is_wanted(&dir, &none) && !super::is_wanted(&dir, &declared));
        assert_eq!([&none, &declared, &deployed].map(super::is_there), [false, true, false]);
        std::fs::write(dir.join(super::FOLDER).join(super::APPLIED), "").unwrap();
        assert!(!super::is_wanted(&dir, &none), "it was removed");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_shop_stays_under_80_lines() {
        assert!(super::PROGRAM.lines().count() < 80);
    }
}
