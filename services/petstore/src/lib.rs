//! The pet store of the Tempest paper (4.3): one page that is made of seven services, which are asked at the same time, each for so long
//! as it may take. A part that is late or down is left out, and the page says so: it is never later than its slowest part may be.
//! All eight are this program; the name of its service says which one a clone is. What they know is in the namespace `store`, of class
//! `soft`, of which each part has a copy in its own memory (`parts.rs`); the page asks, puts together and writes (`page.rs`).

mod page;
mod parts;

use sdk::{Service, StartError};

/// Names of the services of parts begin so.
const PREFIX: &str = "petstore-";

pub async fn serve(service: Service) -> Result<(), StartError> {
    let name = service.given().service.clone();
    match name.strip_prefix(PREFIX) {
        None => page::serve(service).await,
        Some(part) => match parts::ALL.iter().find(|known| known.name == part) {
            Some(part) => parts::serve(service, part).await,
            None => {
                let known: Vec<&str> = parts::ALL.iter().map(|part| part.name).collect();
                let why = format!("there is no part {part:?}; a service {PREFIX}PART is one of: {}", known.join(", "));
                Err(StartError(why))
            }
        },
    }
}
