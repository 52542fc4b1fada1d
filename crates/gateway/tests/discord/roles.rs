//! Roles that count in direct messages.

use hermes_gateway::channel::{Channel, Health};
use hermes_gateway::discord::Past;
use hermes_testkit::discord::Trouble;

use crate::bed::{Bed, settings, text, wide, world};

#[tokio::test]
async fn only_the_roles_of_the_chosen_server_count_in_direct_messages() {
    let world = world(wide()).await;
    let bob = world.server.user("bob");
    let role = world.server.role(world.guild, "staff", &[world.ann]);
    let other = world.server.guild("other", &[world.ann, bob]);
    world.server.role(other, "staff there", &[world.ann, bob]);
    let mut chosen = settings(&world.server);
    chosen.dm_role_guild = Some(world.guild.to_string());
    world.server.trouble("GET /guilds/*/members/*", 1, Trouble::Fail(503));
    let mut bed = Bed::start(world, chosen, Past::default());
    bed.until(|health| *health == Health::Up).await;
    let (ann_dm, bob_dm) = (bed.server.dm(bed.ann), bed.server.dm(bob));
    // Ann's roles are asked for again; who writes meanwhile elsewhere does not wait, and her words keep their order.
    bed.server.say(bed.ann, ann_dm, "one");
    bed.server.say(bed.ann, ann_dm, "two");
    let (first, second) = (bed.letter().await, bed.letter().await);
    assert_eq!((first.text.as_str(), second.text.as_str()), ("one", "two"));
    assert_eq!((first.sender.roles, second.sender.roles), (vec![role.to_string()], vec![role.to_string()]));
    bed.server.expect(10_013);
    bed.server.say(bob, bob_dm, "let me in");
    let letter = bed.letter().await;
    assert_eq!((letter.text.as_str(), letter.sender.roles), ("let me in", Vec::new()));
    // Who presses there has them too.
    let button = hermes_gateway::channel::Button {
        label: "Yes".to_owned(),
        value: "yes".to_owned(),
        look: hermes_gateway::channel::Look::Go,
    };
    let post = hermes_gateway::Post { buttons: vec![button], ..text("well?") };
    let id = bed.discord.send(&ann_dm.to_string(), &post, "a").await.unwrap();
    bed.server.press(bed.ann, id.parse().unwrap(), "yes").await.unwrap();
    assert_eq!(bed.press().await.sender.roles, [role.to_string()]);
    // They are believed for a while.
    let asked = bed
        .server
        .look(|world| world.requests.iter().filter(|request| request.line.contains("/members/")).count());
    assert_eq!(asked, 3);
    bed.end().await;
}

#[tokio::test]
async fn nobody_is_asked_about_where_no_server_is_chosen() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    bed.server.role(bed.guild, "staff", &[bed.ann]);
    bed.server.say(bed.ann, dm, "hello");
    assert_eq!(bed.letter().await.sender.roles, Vec::<String>::new());
    let asked =
        bed.server.look(|world| world.requests.iter().any(|request| request.line.contains("/members/")));
    assert!(!asked);
    bed.end().await;
}
