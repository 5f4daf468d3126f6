# Copies the programs $PROGRAMS of $DEBIAN, and only the libraries they need,
# into the image root $ROOT.
mkdir -p "$ROOT/usr/bin" "$ROOT/usr/lib" "$ROOT/usr/lib64"
ln -s usr/bin "$ROOT/bin"
ln -s usr/lib "$ROOT/lib"
ln -s usr/lib64 "$ROOT/lib64"
for program in $PROGRAMS; do
	cp -L "$DEBIAN/usr/bin/$program" "$ROOT/usr/bin/$program"
done
for program in $PROGRAMS; do echo "/usr/bin/$program"; done |
	chroot "$DEBIAN" xargs ldd | grep -o '/[^ :]*\.so[^ :]*' | sort -u | while read -r library; do
	target=$ROOT/usr${library#/usr}
	mkdir -p "${target%/*}"
	cp -L "$DEBIAN$library" "$target"
done
