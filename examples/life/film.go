package main

import (
	"bufio"
	"image"
	"image/color"
	"image/gif"
	"os"
)

// film is the pictures of the board, at rank 0.
type film struct{ gif gif.GIF }

// delay is the time that a picture is shown, in hundredths of a second.
const delay = 5

var palette = color.Palette{color.White, color.RGBA{0x1b, 0x4d, 0x8f, 0xff}} // dead, alive

// shoot takes a picture. All ranks of the torus call it.
func (f *film) shoot(t *torus, mine *block) error {
	now, err := t.gather(mine)
	if err == nil && t.rank() == 0 {
		f.add(now)
	}
	return err
}

// add appends a picture, with the cells as indices into the palette.
func (f *film) add(b board) {
	f.gif.Image = append(f.gif.Image, &image.Paletted{Pix: b.cells, Stride: b.width,
		Rect: image.Rect(0, 0, b.width, b.height), Palette: palette})
	f.gif.Delay = append(f.gif.Delay, delay)
}

func (f *film) write(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	if err := gif.EncodeAll(w, &f.gif); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}
