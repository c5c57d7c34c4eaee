//! A web service for documents, each of which one user at a time may change, and a page for an administrator.
//!
//! `keylatch-lease-admin [FILE [PORT]]` serves `http://127.0.0.1:PORT/`; without arguments the file is `documents.db`
//! in the current folder, and the port is 8080. With port 0 the system chooses one; the first line of the output has
//! the address.
//!
//! - `/documents/NAME?user=ann` opens a document. The lease ends half an hour after the last keystroke, or when the
//!   document is closed. Every save is *guarded*: it is committed only if the lease has not ended.
//! - `/admin` lists the open documents and their users. The page changes as leases begin and end. It can end a lease by
//!   its token, so a later tenure, even of the same user, is not affected.
//!
//! The leases and the documents are in one file, which any number of these servers on one machine may share.
//!
//! A real service would know the user from its session, not from the address, and would admit only administrators to
//! `/admin`.

mod admin;
mod answer;
mod documents;
mod editor;
mod service;

use std::{error::Error, sync::Arc};

use keylatch_lease::Leases;
use keylatch_lease_sqlite::Sqlite;

use documents::Documents;
use service::Service;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "documents.db".into());
    let port = args.next().map_or(Ok(8080), |port| port.parse::<u16>())?;

    let engine = Sqlite::open(&file)?;
    let documents = Documents::open(file.as_ref(), engine.clone())?;
    let service = Arc::new(Service { leases: Leases::with_engine(engine), documents });

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/admin", listener.local_addr()?);
    let routes = editor::routes().merge(admin::routes()).with_state(service);
    let stopped = async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without a handler, Ctrl-C ends the process in the ordinary way.
            std::future::pending::<()>().await;
        }
    };
    axum::serve(listener, routes).with_graceful_shutdown(stopped).await?;
    Ok(())
}
