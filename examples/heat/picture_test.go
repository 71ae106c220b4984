package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawing is a picture in which every pixel tells where it is.
func drawing(width, height int) *image.Gray16 {
	img := image.NewGray16(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			img.SetGray16(x, y, color.Gray16{Y: uint16(1000*x + 77*y + 5)})
		}
	}
	return img
}

func encoded(t testing.TB, img image.Image) []byte {
	var out bytes.Buffer
	require.NoError(t, png.Encode(&out, img))
	return out.Bytes()
}

// claiming is the PNG with another size in its header, whose checksum is right.
func claiming(file []byte, width, height uint32) []byte {
	file = bytes.Clone(file)
	header := file[12:29] // the chunk's type and the 13 bytes of its data, after signature and length
	binary.BigEndian.PutUint32(header[4:], width)
	binary.BigEndian.PutUint32(header[8:], height)
	binary.BigEndian.PutUint32(file[29:], crc32.ChecksumIEEE(header))
	return file
}

func TestBrightnessIsReadRowByRow(t *testing.T) {
	img := drawing(5, 3)
	width, height, brightness, err := decode(bytes.NewReader(encoded(t, img)))
	require.NoError(t, err)
	require.Equal(t, []int{5, 3}, []int{width, height})
	for i, b := range brightness {
		require.Equal(t, img.Gray16At(i%5, i/5).Y, b)
	}
}

func TestColoursAreReadAsBrightness(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 3, 1))
	img.Set(0, 0, color.White)
	img.Set(1, 0, color.RGBA{G: 0xff, A: 0xff})
	img.Set(2, 0, color.Black)
	_, _, brightness, err := decode(bytes.NewReader(encoded(t, img)))
	require.NoError(t, err)
	require.Len(t, brightness, 3)
	require.EqualValues(t, 0xffff, brightness[0])
	require.InDelta(t, 0.587*0xffff, float64(brightness[1]), 2)
	require.Zero(t, brightness[2])
}

func TestAPictureThatClaimsToBeHugeIsRefused(t *testing.T) {
	file := encoded(t, drawing(4, 4))
	_, _, _, err := decode(bytes.NewReader(claiming(file, 4, 4)))
	require.NoError(t, err, "the test makes bad headers")
	for _, size := range [][2]uint32{{100_000, 100_000}, {maxPixels + 1, 1}, {1, maxPixels + 1}} {
		_, _, _, err := decode(bytes.NewReader(claiming(file, size[0], size[1])))
		require.ErrorContains(t, err, "pixels; need one at least, and at most 67108864")
	}
	for _, size := range [][2]uint32{{0, 4}, {4, 0}, {1<<31 - 1, 1<<31 - 1}, {1 << 31, 1}} {
		_, _, _, err := decode(bytes.NewReader(claiming(file, size[0], size[1])))
		require.Error(t, err, "%d × %d", size[0], size[1])
	}
}

func TestSampleStretchesThePicture(t *testing.T) {
	p := problem{Width: 4, Height: 6, PictureWidth: 2, PictureHeight: 3}
	start := p.sample([]uint16{0, 1, 2, 3, 4, 5})
	for y := range 6 {
		for x := range 4 {
			require.InDelta(t, float64(y/2*2+x/2)/0xffff, start(x, y), 1e-12)
		}
	}
}

func TestColoursGrowLighterWithHeat(t *testing.T) {
	before := -1.0
	for i := range 1001 {
		c := colour(float64(i) / 1000)
		light := 0.299*float64(c.R) + 0.587*float64(c.G) + 0.114*float64(c.B)
		require.GreaterOrEqual(t, light, before-0.5, "at %d/1000", i) // a colour is rounded to bytes
		before = light
	}
	require.Equal(t, anchors[0], colour(-1))
	require.Equal(t, anchors[len(anchors)-1], colour(2))
}

func FuzzDecode(f *testing.F) {
	file := encoded(f, drawing(7, 5))
	f.Add(file)
	f.Add(encoded(f, image.NewPaletted(image.Rect(0, 0, 3, 3), color.Palette{color.White, color.Black})))
	f.Add(encoded(f, image.NewNRGBA(image.Rect(0, 0, 2, 9))))
	f.Add(file[:len(file)/2])
	f.Add(claiming(file, 100_000, 100_000))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, file []byte) {
		c, headerErr := png.DecodeConfig(bytes.NewReader(file))
		if headerErr == nil && c.Height > 0 && c.Width <= maxPixels/c.Height && c.Width > 1<<16/c.Height {
			t.Skip("is decoded, and takes much memory")
		}
		width, height, brightness, err := decode(bytes.NewReader(file))
		if err != nil {
			require.Empty(t, brightness)
			return
		}
		require.NoError(t, headerErr)
		require.Equal(t, []int{c.Width, c.Height}, []int{width, height})
		require.Len(t, brightness, width*height)
	})
}
