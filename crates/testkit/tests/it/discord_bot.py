"""Runs discord.py against the fake server: `discord_bot.py API GATEWAY TOKEN`. Prints each event as a line of JSON."""

import io
import json
import sys

import discord
import yarl
from discord import app_commands

base, gateway, token = sys.argv[1:]
discord.http.Route.BASE = base
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway)
intents = discord.Intents.default()
intents.message_content = True
client = discord.Client(intents=intents)
tree = app_commands.CommandTree(client)


def seen(what, *facts):
    print(json.dumps([what, *facts]), flush=True)


@tree.command(name="ask", description="asks")
async def ask(interaction, question: str):
    await interaction.response.defer(thinking=True)
    await interaction.followup.send(f"you asked: {question}")
    seen("command", question)


class Buttons(discord.ui.View):
    @discord.ui.button(label="Yes", custom_id="yes", style=discord.ButtonStyle.success)
    async def yes(self, interaction, button):
        button.disabled = True
        await interaction.response.edit_message(content="pressed", view=self)
        await interaction.followup.send("only for you", ephemeral=True)
        seen("pressed", interaction.user.name, interaction.message.content)


@client.event
async def on_ready():
    commands = await tree.sync()
    info = await client.application_info()
    seen("ready", client.user.name, [guild.name for guild in client.guilds], [command.name for command in commands], info.owner.name)


@client.event
async def on_resumed():
    seen("resumed")


@client.event
async def on_raw_reaction_add(event):
    if event.user_id != client.user.id:
        seen("reaction", str(event.emoji))


@client.event
async def on_message_edit(before, after):
    if after.author != client.user and before.content != after.content:
        seen("edited", before.content, after.content)


@client.event
async def on_raw_message_delete(event):
    seen("deleted", event.cached_message.content)


@client.event
async def on_message(message):
    if message.author == client.user or message.type not in (discord.MessageType.default, discord.MessageType.reply):
        return
    where = message.channel
    seen("message", message.content, type(where).__name__, message.author.name, client.user in message.mentions)
    if message.content == "buttons":
        await where.send("choose", view=Buttons(), nonce=7)
    elif message.content == "forum":
        forum = discord.utils.get(message.guild.channels, name="ideas")
        post = await forum.create_thread(name="a post", content="its first message")
        seen("post", post.thread.name, post.message.content)
    elif message.content == "file":
        given = await message.attachments[0].read()
        made = discord.File(io.BytesIO(given[::-1]), filename="back.bin", description="turned")
        sent = await where.send("here", file=made)
        seen("file", len(given), (await sent.attachments[0].read())[:3].decode())
    elif message.content == "many":
        # More than one bucket holds, so that the headers of the limits are used.
        for number in range(7):
            await where.send(f"number {number}")
        seen("many")
    elif message.content == "wrong":
        refused = []
        for wrong in (
            lambda: where.send("x" * 2001),
            lambda: where.send("   "),
            lambda: client.get_partial_messageable(17).send("nowhere"),
            lambda: message.edit(content="not mine"),
        ):
            try:
                await wrong()
            except discord.HTTPException as error:
                refused.append([error.status, error.code])
        seen("refused", refused)
    elif isinstance(where, discord.DMChannel):
        await where.send("in private")
    elif client.user in message.mentions:
        async with where.typing():
            answer = await message.reply("working", mention_author=False)
        await message.add_reaction("👀")
        await answer.edit(content="done")
        await message.remove_reaction("👀", client.user)
        await message.add_reaction("✅")
        thread = await message.create_thread(name="a talk", auto_archive_duration=1440)
        await thread.send("in the thread")
        history = [known.content async for known in where.history(limit=10)]
        fetched = await where.fetch_message(answer.id)
        seen("answered", history, fetched.reference.resolved.content, [str(known.emoji) for known in (await where.fetch_message(message.id)).reactions])


client.run(token, log_handler=None)
