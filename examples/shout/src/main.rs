//! A worker: it makes capitals of a text. What else a worker has to do is the SDK's matter.

use sdk::{Job, Made};

fn shout(job: Job) -> Made {
    match std::str::from_utf8(&job.content) {
        Ok(text) => Made::new("text/plain", text.to_uppercase()),
        Err(_) => Made::Bad("it is no text".into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), sdk::StartError> {
    sdk::Worker::from_env()?.run(shout).await
}
