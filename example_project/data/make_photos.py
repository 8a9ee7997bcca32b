"""Draw the photos of the products that the shop sells: `python example_project/data/make_photos.py`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter

SIZE = (1600, 1200)
Colour = tuple[int, int, int]
PHOTOS: dict[str, tuple[Callable[[ImageDraw.ImageDraw, Colour], None], Colour, Colour]] = {}


def photo(slug: str, colour: Colour, wall: Colour):
    """Register the function that draws one product, in `colour` in front of a `wall`."""

    def register(draw):
        PHOTOS[slug] = (draw, colour, wall)
        return draw

    return register


def shade(colour: Colour, factor: float) -> Colour:
    return tuple(min(255, round(channel * factor)) for channel in colour)


@photo("stoneware-mug", (178, 92, 60), (226, 220, 208))
def mug(draw, colour):
    draw.ellipse((1000, 460, 1230, 800), outline=shade(colour, 0.8), width=52)
    draw.rounded_rectangle((560, 400, 1080, 920), 70, fill=colour)
    draw.ellipse((560, 340, 1080, 470), fill=shade(colour, 1.2))
    draw.ellipse((590, 358, 1050, 455), fill=(66, 40, 26))


@photo("desk-lamp", (38, 84, 102), (238, 232, 222))
def lamp(draw, colour):
    draw.ellipse((560, 880, 1010, 980), fill=shade(colour, 0.7))
    draw.line((785, 920, 700, 600, 960, 380), fill=shade(colour, 0.9), width=30, joint="curve")
    draw.polygon(((900, 300), (1040, 440), (1230, 620), (1010, 640), (850, 470)), fill=colour)
    draw.ellipse((1010, 560, 1230, 680), fill=(255, 240, 190))


@photo("plant-pot", (206, 148, 104), (214, 226, 220))
def plant(draw, colour):
    leaf = random.Random(3)
    for _ in range(46):
        x, y = leaf.randint(520, 1080), leaf.randint(180, 620)
        green = (leaf.randint(30, 70), leaf.randint(100, 160), leaf.randint(50, 90))
        draw.line((800, 720, x, y), fill=(62, 92, 48), width=9)
        draw.ellipse((x - 62, y - 38, x + 62, y + 38), fill=green)
    draw.polygon(((600, 680), (1000, 680), (940, 960), (660, 960)), fill=colour)
    draw.rectangle((580, 650, 1020, 730), fill=shade(colour, 1.12))


@photo("linen-notebook", (70, 98, 84), (232, 222, 206))
def notebook(draw, colour):
    draw.polygon(((480, 860), (1130, 940), (1200, 470), (590, 390)), fill=(246, 242, 232))
    draw.polygon(((470, 840), (1120, 915), (1190, 445), (580, 370)), fill=colour)
    draw.line((530, 850, 640, 378), fill=shade(colour, 0.7), width=26)
    draw.line((1020, 905, 1090, 430), fill=(190, 60, 50), width=14)


@photo("glass-bottle", (88, 150, 140), (222, 228, 232))
def bottle(draw, colour):
    draw.rounded_rectangle((650, 520, 950, 980), 60, fill=colour)
    draw.polygon(((650, 570), (740, 360), (860, 360), (950, 570)), fill=shade(colour, 1.05))
    draw.rectangle((740, 210, 860, 380), fill=shade(colour, 1.1))
    draw.rectangle((730, 170, 870, 240), fill=(150, 112, 74))
    draw.rectangle((690, 560, 725, 930), fill=shade(colour, 1.45))
    draw.rectangle((700, 660, 900, 830), fill=(244, 238, 222))


@photo("wall-clock", (240, 238, 230), (172, 148, 130))
def clock(draw, colour):
    draw.ellipse((450, 240, 1150, 940), fill=(52, 44, 40))
    draw.ellipse((485, 275, 1115, 905), fill=colour)
    for x, y in ((800, 305), (1085, 590), (800, 875), (515, 590)):
        draw.ellipse((x - 16, y - 16, x + 16, y + 16), fill=(52, 44, 40))
    draw.line((800, 590, 800, 360), fill=(40, 36, 34), width=18)
    draw.line((800, 590, 980, 690), fill=(40, 36, 34), width=24)
    draw.ellipse((776, 566, 824, 614), fill=(180, 60, 46))


@photo("oak-stool", (186, 140, 90), (226, 226, 220))
def stool(draw, colour):
    for top, foot in ((640, 540), (960, 1060), (730, 690), (870, 910)):
        draw.line((top, 540, foot, 980), fill=shade(colour, 0.72), width=42)
    draw.line((585, 790, 1015, 790), fill=shade(colour, 0.62), width=26)
    draw.ellipse((530, 440, 1070, 600), fill=shade(colour, 0.85))
    draw.ellipse((530, 415, 1070, 570), fill=colour)


@photo("wool-blanket", (146, 62, 72), (236, 228, 216))
def blanket(draw, colour):
    for layer in range(7):
        y = 860 - layer * 84
        tone = shade(colour, 0.8 + 0.08 * (layer % 3))
        draw.rounded_rectangle((470 + layer * 5, y, 1140 - layer * 7, y + 96), 46, fill=tone)
        for x in range(520, 1100, 60):
            draw.line((x, y + 6, x + 26, y + 88), fill=shade(tone, 1.2), width=7)


def render(draw: Callable[[ImageDraw.ImageDraw, Colour], None], colour: Colour, wall: Colour, seed: int) -> Image.Image:
    """Draw a product on a table: gradients as light, a soft shadow, blur as by a lens and noise as by a sensor."""
    background = Image.new("RGB", SIZE, wall)
    ImageDraw.Draw(background).rectangle((0, 860, *SIZE), fill=shade(wall, 0.72))
    background = background.filter(ImageFilter.GaussianBlur(14))

    subject = Image.new("RGBA", SIZE, (0, 0, 0, 0))
    draw(ImageDraw.Draw(subject), colour)
    mask = subject.getchannel("A")
    shadow = ImageChops.offset(mask, 70, 40).filter(ImageFilter.GaussianBlur(42)).point(lambda level: level * 0.45)
    background.paste((38, 32, 28), (0, 0), shadow)
    background.paste(subject.convert("RGB"), (0, 0), mask.filter(ImageFilter.GaussianBlur(1.6)))

    light = ImageChops.offset(Image.radial_gradient("L").resize(SIZE), -260, -160).filter(ImageFilter.GaussianBlur(120))
    background = Image.composite(background.point(lambda level: level * 0.62), background, light)
    noise = Image.effect_noise((SIZE[0] // 2, SIZE[1] // 2), 8).resize(SIZE)
    noise = ImageChops.offset(noise, seed * 37, seed * 53)
    return ImageChops.add(background, Image.merge("RGB", (noise,) * 3), scale=1.0, offset=-128)


if __name__ == "__main__":
    folder = Path(__file__).parent / "photos"
    folder.mkdir(exist_ok=True)
    for number, (name, (draw, colour, wall)) in enumerate(PHOTOS.items()):
        render(draw, colour, wall, number).save(folder / f"{name}.jpg", quality=82, optimize=True)
