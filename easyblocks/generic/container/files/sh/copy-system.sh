# shellcheck shell=sh
# Copy directories of the image, without what packages don't need or other accounts can't read.
# Links in the copy are the image's: only in a container they can't lead to files of this machine.
# Usage: TARGET DIRECTORY... -- PACKAGE...  (names in /, and packages of the image that will get another version)
target=$1
shift
directories=
while [ "$1" != -- ]; do
    directories="$directories $1"
    shift
done
shift

# Print the paths to copy. Packages only add to some directories, which may have gigabytes (CUDA is in /usr/local): of
# these, only directories and links are copied, and the files of the packages that will be replaced.
print_paths() {
    # shellcheck disable=SC2086  # names without spaces
    find $directories -xdev \( -path 'usr/local/*' -o -path 'usr/share/doc/*' -o -path 'var/cache/*' \
        -o -path 'var/log/*' -o -path 'var/tmp/*' -o -path 'var/lib/apt/lists/*' \) \
        ! -path 'usr/local/share/ca-certificates/*' ! -path 'var/cache/debconf/*' \
        ! -type d ! -type l -o -print0
    [ $# -eq 0 ] || dpkg-query --listfiles "$@" | sed -nE 's,^/((usr/local|usr/share/doc|var/(cache|log))/),\1,p' |
        tr '\n' '\0'
}

cd / || exit
# better than a disk that is full for everybody
size=$(print_paths "$@" 2>/dev/null | perl -0 -ne 'chomp; $sum += (lstat)[7] + 4096; END { print $sum }')
free=$(df -B1 --output=avail "$target" | tail -n 1)
if [ "$size" -gt "$free" ]; then
    echo "No space left: $size bytes are needed, $((free)) are free" >&2
    exit 1
fi
print_paths "$@" 2>/dev/null | tar --ignore-failed-read --no-recursion --null --files-from=- -cf - 2>/dev/null |
    tar -C "$target" --no-same-owner --delay-directory-restore -xpf - || exit
# the runtime mounts its own
for name in passwd group hosts resolv.conf; do
    rm -f "$target/etc/$name"
    cat "/etc/$name" >"$target/etc/$name" 2>/dev/null || :
done
cd "$target" || exit
# root could write to all of it
find . ! -type l ! -perm -u=w -exec chmod u+rwX {} +
# what packages expect, and images may lack: update-alternatives makes links to manual pages
for name in run usr/local usr/sbin usr/share/doc var/cache/debconf var/lib/apt/lists var/lib/dpkg/updates \
    var/lib/dpkg/triggers var/log/apt var/tmp; do
    mkdir -p "$name" || exit
done
for part in 1 2 3 4 5 6 7 8 9; do
    mkdir -p "usr/share/man/man$part" || exit
done
[ -e etc/shadow ] || echo 'root:*:19000:0:99999:7:::' >etc/shadow || exit
[ -e etc/gshadow ] || echo 'root:*::' >etc/gshadow || exit
# no service is started
printf '#!/bin/sh\nexit 101\n' >usr/sbin/policy-rc.d && chmod 755 usr/sbin/policy-rc.d
