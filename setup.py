"""What setuptools cannot be told in pyproject.toml: the core in C, which any Python 3 loads, and the wheel's name."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

SOURCES = Path("voxload/core")


class Wheel(bdist_wheel):  # type: ignore[misc]
    """A wheel for one kind of machine and every Python: the core knows nothing of the interpreter."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            "voxload.core._core",
            sorted(map(str, SOURCES.rglob("*.c"))),
            depends=sorted(map(str, SOURCES.rglob("*.h"))),
            include_dirs=[str(SOURCES)],
            py_limited_api=True,
            extra_compile_args=[
                "-std=c11",
                "-O3",
                "-fvisibility=hidden",
                "-ffp-contract=off",
                "-pthread",
                "-Wall",
                "-Wextra",
            ],
            extra_link_args=["-pthread", "-Wl,-Bsymbolic"],
        )
    ],
    cmdclass={"bdist_wheel": Wheel},
)
