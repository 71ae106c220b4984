package main

import (
	"bufio"
	"image"
	"image/color"
	"image/gif"
	"os"
)

// film is the pictures of the board, at rank 0.
type film struct {
	gif  gif.GIF
	side int // pixels of a cell, each way
}

// filmSide is about how many pixels a picture has in its longer direction, unless the board has more cells.
const filmSide = 512

// newFilm is a film of a number of pictures, with cells as large as filmSide and maxFilm let them be.
func newFilm(width, height, pictures int) *film {
	f := &film{side: max(1, filmSide/max(width, height))}
	for f.side > 1 && pictures > maxFilm/(f.side*f.side*width*height) {
		f.side--
	}
	return f
}

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
	picture := image.NewPaletted(image.Rect(0, 0, b.width*f.side, b.height*f.side), palette)
	for y := range b.height * f.side {
		row := picture.Pix[y*picture.Stride:][:picture.Stride]
		for x := range row {
			row[x] = b.cells[y/f.side*b.width+x/f.side]
		}
	}
	f.gif.Image = append(f.gif.Image, picture)
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
