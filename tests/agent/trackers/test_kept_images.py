"""Which images of trackers are kept."""

from allranks.agent.trackers import kept_images
from allranks.agent.trackers.kept_images import KeptImages
from allranks.agent.trackers.readings import Image


def test_an_image_that_grows_is_read_up_to_the_size_that_was_allowed(tmp_path, monkeypatch):
    source = tmp_path / "a.png"
    source.write_bytes(b"png")

    def grows(*_: object) -> str:
        source.write_bytes(b"png" + bytes(1000))
        return "a.png"

    monkeypatch.setattr(kept_images, "image_path", grows)
    images: dict[str, bytes] = {}
    KeptImages().keep(Image("a", 0, ".png", source), None, tmp_path, images.__setitem__)
    assert images == {"a.png": b"png"}
