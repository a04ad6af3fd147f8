"""The tools of the demo's agent: they touch files, run a command, and count each run."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import flightlog
from flightlog_recorder.demo.workspace import OUTBOX, Workspace, append_line

Tool = Callable[..., Awaitable[object]]


def tools_of(workspace: Workspace) -> dict[str, Tool]:
    """The tools by the names under which the model knows them."""
    root = workspace.files

    @flightlog.tool(on_resume="rerun", effect="read")
    async def read_file(path: str) -> str:
        return _inside(root, path).read_text()

    @flightlog.tool(on_resume="rerun", effect="write")
    async def write_file(path: str, text: str) -> str:
        _inside(root, path).write_text(text + "\n")
        return "written"

    @flightlog.tool(on_resume="rerun", effect="read")
    async def shell(command: str) -> str:
        process = await asyncio.create_subprocess_shell(
            command, cwd=root, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        return output.decode().strip()

    @flightlog.tool(on_resume="ask", effect="write")
    async def send_mail(to: str, text: str) -> str:
        append_line(root / OUTBOX, f"{to}: {text}")
        return "sent"

    return {tool.__name__: tool for tool in (read_file, write_file, shell, send_mail)}


def counted(workspace: Workspace, tool: Tool, call_id: str) -> Tool:
    """The tool, writing down that it runs before it does anything else."""

    async def run(**arguments: object) -> object:
        append_line(workspace.runs_file, f"{tool.__name__} {call_id}")
        return await tool(**arguments)

    return run


def _inside(root: Path, path: str) -> Path:
    found = (root / path).resolve()
    if not found.is_relative_to(root.resolve()):
        raise PermissionError(f"{path} lies outside the workspace")
    return found
