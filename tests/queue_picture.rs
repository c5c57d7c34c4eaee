//! The picture in `docs/guide.md` shows what the code does now.

#[path = "../examples/queue_picture.rs"]
mod queue_picture;

#[test]
fn the_picture_of_the_guide_is_what_the_code_does() {
    let committed = include_str!("../docs/charts/queue.svg");
    let fresh = queue_picture::svg();
    assert!(
        fresh == committed,
        "run `cargo run --example queue_picture > docs/charts/queue.svg`, and see what has changed"
    );
}
