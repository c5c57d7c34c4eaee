//! The picture in `docs/guide.md` matches the current behaviour.

#[path = "../examples/queue_picture.rs"]
mod queue_picture;

#[test]
fn the_picture_in_the_guide_matches_the_code() {
    let committed = include_str!("../docs/charts/queue.svg");
    let fresh = queue_picture::svg();
    assert!(
        fresh == committed,
        "run `cargo run --example queue_picture > docs/charts/queue.svg` and review the difference"
    );
}
