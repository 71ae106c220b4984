package main

import (
	"bufio"
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
)

// maxPixels is the largest picture to start from: at most 512 MiB while it is decoded.
const maxPixels = 1 << 26

// load reads a picture's size and brightness, row by row.
func load(name string) (width, height int, brightness []uint16, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, 0, nil, err
	}
	defer f.Close()
	width, height, brightness, err = decode(f)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("%s: %w", name, err)
	}
	return width, height, brightness, nil
}

func decode(file io.ReadSeeker) (width, height int, brightness []uint16, err error) {
	// The size is looked at first: a small file can claim to be a picture that no memory holds.
	c, err := png.DecodeConfig(file)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("not a PNG that can be read: %w", err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > maxPixels/c.Height {
		return 0, 0, nil, fmt.Errorf("%d × %d pixels; need one at least, and at most %d", c.Width, c.Height,
			maxPixels)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, 0, nil, err
	}
	img, err := png.Decode(bufio.NewReader(file))
	if err != nil {
		return 0, 0, nil, fmt.Errorf("not a PNG that can be read: %w", err)
	}
	b := img.Bounds()
	brightness = make([]uint16, 0, b.Dx()*b.Dy())
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			brightness = append(brightness, color.Gray16Model.Convert(img.At(x, y)).(color.Gray16).Y)
		}
	}
	return b.Dx(), b.Dy(), brightness, nil
}

// sample takes the temperature of a cell from the picture's pixel at its place.
func (p problem) sample(brightness []uint16) temperature {
	return func(x, y int) float64 {
		pixel := y*p.PictureHeight/p.Height*p.PictureWidth + x*p.PictureWidth/p.Width
		return float64(brightness[pixel]) / math.MaxUint16
	}
}

// spots is the start without a picture: hot and cold spots laid out as the seeds of a sunflower are, larger
// from the middle outwards. Heat evens out small spots first.
func spots(width, height int) temperature {
	const (
		count  = 90
		golden = 2.399963229728653 // the golden angle, in radians
	)
	unit := math.Hypot(float64(width), float64(height)) / 2 // from the middle to a corner
	type spot struct{ x, y, radius, t float64 }
	all := make([]spot, count)
	for i := range all {
		k := float64(i+1) / count
		sin, cos := math.Sincos(float64(i) * golden)
		distance := unit * math.Pow(k, 0.7)
		all[i] = spot{
			x: float64(width)/2 + distance*cos, y: float64(height)/2 + distance*sin,
			radius: unit * (0.02 + 0.075*k), t: float64(i % 2),
		}
	}
	return func(x, y int) float64 {
		for _, s := range all {
			dx, dy := float64(x)+0.5-s.x, float64(y)+0.5-s.y
			if dx*dx+dy*dy < s.radius*s.radius {
				return s.t
			}
		}
		return 0.4
	}
}

// anchors are the colours of temperatures from 0 to 1, evenly apart, and growing lighter all the way.
var anchors = []color.RGBA{
	{0x00, 0x00, 0x04, 0xff}, {0x1b, 0x0c, 0x41, 0xff}, {0x4a, 0x0c, 0x6b, 0xff}, {0x78, 0x1c, 0x6d, 0xff},
	{0xa5, 0x2c, 0x60, 0xff},
	{0xcf, 0x44, 0x46, 0xff}, {0xed, 0x69, 0x25, 0xff}, {0xfb, 0x9b, 0x06, 0xff}, {0xf7, 0xd1, 0x3d, 0xff},
	{0xfc, 0xff, 0xa4, 0xff},
}

// colour returns the colour of a temperature.
func colour(t float64) color.RGBA {
	at := min(max(t, 0), 1) * float64(len(anchors)-1)
	i := min(int(at), len(anchors)-2)
	a, b, part := anchors[i], anchors[i+1], at-float64(i)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + part*(float64(b)-float64(a)))) }
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 0xff}
}

// draw makes a PNG of the plate, a pixel a cell.
func draw(p problem, field []float64) ([]byte, error) {
	img := image.NewRGBA(image.Rect(0, 0, p.Width, p.Height))
	for i, t := range field {
		img.SetRGBA(i%p.Width, i/p.Width, colour(t))
	}
	var out bytes.Buffer
	err := png.Encode(&out, img)
	return out.Bytes(), err
}
